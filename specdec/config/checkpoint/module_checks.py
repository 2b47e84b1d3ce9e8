"""Numbers that only tensor names tell: modules inside a larger checkpoint, heads of a list of heads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specdec.config.checkpoint.context import CheckContext, finding
from specdec.config.checkpoint.keys import find
from specdec.config.checkpoint.tensor_checks import MISMATCH
from specdec.config.checkpoint.tensors import layer_count
from specdec.config.diagnostics import Diagnostic, Found, Origin


def check_modules(context: CheckContext) -> Iterator[Diagnostic]:
    """``modules``: fine-tuned exports often keep the count in the config and drop the modules from the weights."""
    rule = context.rules.get("modules")
    count = context.fact(rule["fact"]) if rule else None
    if rule is None or not count or not context.listing_is_whole:
        return
    layers = find(context.checkpoint.config, "num_hidden_layers")
    beyond = layers is not None and isinstance(layers[1], int) and layer_count(context.shapes or {}) > layers[1]
    if beyond or any(re.search(rule["named"], name) for name in context.shapes or ()):
        return
    at = context.at(rule["fact"])
    message = f"{at.removeprefix('draft.')} is {count}, but the weights hold no such module (no tensor name has {rule['named']})"
    yield finding(MISMATCH, at, message, "use weights that were saved with their MTP modules, or another speculator")


def stored_counts(context: CheckContext) -> dict[str, int]:
    """``counts``: fact -> the number of different first groups among the tensor names."""
    counted: dict[str, int] = {}
    for rule in (context.rules.get("counts") or ()) if context.shapes else ():
        groups = {match[1] for name in context.shapes or () if (match := re.match(rule["named"], name))}
        if groups:
            counted[rule["fact"]] = len(groups)
    return counted


def check_counts(context: CheckContext) -> Iterator[Diagnostic]:
    """A number that the config states and the weights contradict."""
    for fact, stored in stored_counts(context).items():
        if context.stated(fact) and context.fact(fact) != stored:
            message = f"the config says {fact} {context.fact(fact)}, but the weights hold {stored}"
            yield finding(MISMATCH, context.at(fact), message, f"set it to {stored} in the config.json")


def counted_facts(context: CheckContext) -> dict[str, Found]:
    """Counts for facts that the config does not state."""
    origin = Origin("checkpoint", "tensor names")
    return {name: Found(n, origin) for name, n in stored_counts(context).items() if context.fact(name) is None}
