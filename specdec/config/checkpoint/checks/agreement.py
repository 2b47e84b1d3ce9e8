"""Two keys of one fact that say different things: one of them is wrong, and the checkpoint cannot say which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.facts.canonical import TENSOR_KEY, as_type, conversion_of, shown
from specdec.config.checkpoint.facts.convert import CONVERSIONS, INPUT_TYPES, ConversionContext
from specdec.config.checkpoint.facts.keys import find
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.record import FactSpec

# Names, maps and floats come in several legitimate spellings; counts, ids and switches do not.
EXACT_TYPES = ("integer", "boolean", "list<integer>")


def check_agreement(context: CheckContext) -> Iterator[Diagnostic]:
    """Compares the keys of each fact, as the checkpoint wrote them, before any rewrite."""
    for spec in context.record.facts.values():
        written = list(_written(spec, context)) if spec.type in EXACT_TYPES else []
        for key, value in written[1:]:
            if value != written[0][1]:
                message = (
                    f"{key} says {shown(value)}, but {written[0][0]} says {shown(written[0][1])}; both mean {spec.name}"
                )
                yield finding(
                    "checkpoint-keys-disagree", f"draft.{key}", message, "keep the one the draft was trained with"
                )
                break


def _written(spec: FactSpec, context: CheckContext) -> Iterator[tuple[str, Any]]:
    """Each key that the config has, with its canonical value; a key that picks from a list is only a last resort."""
    for key in spec.keys:
        hit = None if key.startswith(TENSOR_KEY) or "[" in key else find(context.checkpoint.config, key)
        conversion = conversion_of(spec, key)
        value = as_type(hit[1], spec.type) if hit and (conversion or "") not in INPUT_TYPES else None
        if hit is None or value is None:
            continue
        if conversion:
            value, _ = CONVERSIONS[conversion](value, ConversionContext(key, context.target("num_hidden_layers")))
        yield hit[0], value
