"""Rotary position settings of a draft against its target's; a converter that drops them costs acceptance silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.findings.diagnostics import Diagnostic

DEFAULT_THETA = 10000.0  # what every library uses when the config states none
_SETTINGS = {"rope_type": "default", "rope_factor": None}


def check_rope_type(context: CheckContext) -> Iterator[Diagnostic]:
    """Rotary settings beyond the base need a type, or they do nothing."""
    settings = context.fact("rope_scaling")
    if isinstance(settings, Mapping) and "factor" in settings and not context.stated("rope_type"):
        message = f"{context.at('rope_scaling').removeprefix('draft.')} has a factor but no rope_type, so it is read as default"
        yield finding(
            "rope-type-missing", context.at("rope_scaling"), message, "add rope_type, as it was in training", "warning"
        )


def check_rope(context: CheckContext) -> Iterator[Diagnostic]:
    """``rope: compare``: warns where type, factor or a stated theta differ; values are compared, never mere presence."""
    if context.rules.get("rope") != "compare" or not context.target_facts:
        return
    fix = "keep it if the draft was trained this way; else copy the target's rope settings into the draft's config.json"
    if context.target("rope_type") is None and context.target("rope_theta") is None:
        return
    for name, default in _SETTINGS.items():
        ours, theirs = context.fact(name) or default, context.target(name) or default
        if ours != theirs:
            words = {"rope_type": "type", "rope_factor": "factor"}[name]
            message = f"the draft's rope {words} is {ours or 'not set'}, the target's is {theirs or 'not set'}"
            yield finding("rope-differs", "draft.rope_scaling", message, fix, "warning")
            return
    ours, theirs = context.fact("rope_theta"), context.target("rope_theta")
    if theirs is not None and ours is not None and float(ours) != float(theirs):
        how = "" if context.stated("rope_theta") else " (a guess: its config states none)"
        message = f"the draft's rope_theta is {ours:g}{how}, the target's is {theirs:g}"
        yield finding(
            "rope-differs",
            context.at("rope_theta"),
            message,
            fix,
            "warning",
        )
    elif theirs is not None and ours is None and float(theirs) != DEFAULT_THETA:
        message = f"the draft states no rope_theta, so {DEFAULT_THETA:g} is a guess; the target's is {theirs:g}"
        yield finding("rope-differs", "draft.rope_theta", message, fix, "warning")
