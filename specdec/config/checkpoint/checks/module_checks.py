"""Numbers that only tensor names tell: modules inside a larger checkpoint, heads of a list of heads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.checks.tensor_checks import MISMATCH
from specdec.config.checkpoint.facts.tensor_names import layer_count
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin, Severity


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
    corrected = corrected_facts(context)
    for fact, stored in stored_counts(context).items():
        if not context.stated(fact) or context.fact(fact) == stored:
            continue
        message = f"the config says {fact} {context.fact(fact)}, but the weights hold {stored}"
        message += ", and they count" if fact in corrected else ""
        severity: Severity = "warning" if fact in corrected else "error"
        yield finding(MISMATCH, context.at(fact), message, f"set it to {stored} in the config.json", severity)


def corrected_facts(context: CheckContext) -> dict[str, Found]:
    """Numbers that published configs are known to get wrong in one direction; what is stored decides."""
    decided: dict[str, int] = {}
    usual, fact = context.rules.get("usual_layers"), str(context.rules.get("layer_count"))
    claimed, stored = context.fact(fact), layer_count(context.shapes or {})
    if usual and claimed and stored and claimed > usual >= stored:
        decided[fact] = stored
    stored_by_name = stored_counts(context)
    for rule in context.rules.get("counts") or ():
        number, said = stored_by_name.get(rule["fact"]), context.fact(rule["fact"])
        if rule.get("may_understate") and number and said and said < number and _counted(rule, context):
            decided[rule["fact"]] = number
    return {
        name: Found(n, Origin("checkpoint", "tensor names", over=_said(context, name))) for name, n in decided.items()
    }


def _counted(rule: Mapping[str, Any], context: CheckContext) -> bool:
    return any(re.match(rule["named"], name) for name in context.shapes or ())


def _said(context: CheckContext, name: str) -> tuple[tuple[Origin, Any], ...]:
    found = context.facts[name]
    return ((found.origin, found.value),)


def counted_facts(context: CheckContext) -> dict[str, Found]:
    """Counts for facts that the config does not state."""
    origin = Origin("checkpoint", "tensor names")
    return {name: Found(n, origin) for name, n in stored_counts(context).items() if context.fact(name) is None}
