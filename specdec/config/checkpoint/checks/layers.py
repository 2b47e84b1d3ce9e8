"""Which of the target's hidden states a draft reads: boundary ids, their defaults, and checks against the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.checks.tensor_checks import MISMATCH, check_own_embeddings
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin

FIX = "use a draft that was trained for this target"
Spread = Callable[[int, int], list[int]]


def low_middle_high(layers: int, count: int) -> list[int]:
    """Boundaries 2, L // 2 and L - 3, clamped and without repeats (the default of EAGLE-3 trainers)."""
    return sorted({min(max(i, 0), layers) for i in (2, layers // 2, layers - 3)})


def low_middle_high_last(layers: int, count: int) -> list[int]:
    """The same and the last layer's output, which trainers take as what the draft should reach."""
    return sorted({*low_middle_high(layers, count), layers})


def even_layer_outputs(layers: int, count: int) -> list[int]:
    """Outputs of ``count`` layers spread evenly from 1 to L - 3, as boundaries (the default of DFlash trainers)."""
    if count == 1:
        return [layers // 2 + 1]
    return [round(1 + i * (layers - 4) / (count - 1)) + 1 for i in range(count)]


SPREADS: dict[str, Spread] = {f.__name__: f for f in (low_middle_high, low_middle_high_last, even_layer_outputs)}


def with_default_ids(context: CheckContext, chosen: Sequence[int] | None) -> tuple[Found | None, list[Diagnostic]]:
    """``aux_layers``: the ids to use when the draft names none, with the warning that they were guessed.

    ``chosen`` are the defaults of the target's own record, which win over the draft's.
    """
    rule = context.rules.get("aux_layers")
    layers = context.target("num_hidden_layers")
    if not rule or context.fact(rule["fact"]) is not None:
        return None, []
    off = rule.get("unless")
    if off and context.fact(off["fact"]) == off["equals"]:
        return Found([], Origin("checkpoint", context.at(off["fact"]).removeprefix("draft."))), []
    at, fix = f"draft.{rule['pin']}", f"set {rule['pin']} in the draft's config.json to what it was trained with"
    if layers is None:
        message = (
            f"the draft does not name the target layers it reads ({rule['pin']}); they will be guessed from the target"
        )
        return None, [finding("aux-layers-defaulted", at, message, fix, "warning")]
    count = _stored_count(context) or (context.fact(rule["count"]) if "count" in rule else None)
    spread = SPREADS[rule["default"]]
    ids = list(chosen) if chosen is not None else spread(layers, count or rule.get("default_count", 3))
    message = (
        f"the draft does not name the target layers it reads; boundaries {', '.join(map(str, ids))} of {layers} are a guess, "
        f"and a wrong guess makes every draft be rejected; {rule['pin']} pins them"
    )
    found = Found(
        ids, Origin("derived", f"default layers ({rule['pin']} is not set)", inputs=("target.num_hidden_layers",))
    )
    return found, [finding("aux-layers-defaulted", at, message, fix, "warning")]


def _stored_count(context: CheckContext) -> int | None:
    """How many states of the target's width the projection takes, where it is known."""
    rule, width = context.rules.get("feature_projection"), context.target("hidden_size")
    shape = (context.shapes or {}).get(rule["tensor"], ()) if rule else ()
    return shape[1] // width if width and len(shape) == 2 and shape[1] % width == 0 else None


def check_ids(context: CheckContext) -> Iterator[Diagnostic]:
    """In range (the layer count itself is the last output before the final norm), strictly increasing, and as many as fc takes."""
    rule = context.rules.get("aux_layers")
    found = context.facts.get(rule["fact"]) if rule else None
    if rule is None or found is None:
        return
    ids, layers, at = found.value, context.target("num_hidden_layers"), context.at(rule["fact"])
    rises = all(b > a for a, b in pairwise(ids))
    outside = [i for i in ids if i < 0 or (layers is not None and i > layers)]
    off = rule.get("unless")
    if not ids and not (off and context.fact(off["fact"]) == off["equals"]):
        message = f"{at.removeprefix('draft.')} is an empty list, so the draft would read no state of the target"
        yield finding("layer-ids-empty", at, message, "name the layers it was trained with")
    elif found.origin.kind == "derived" and (outside or not rises):
        message = f"the draft names no target layers, and our guess, {len(ids)} boundaries {ids}, does not fit a target of {layers} layers"
        fix = f"set {rule['pin']} in the draft's config.json to what it was trained with"
        yield finding("layer-ids-not-increasing" if not rises else "layer-id-out-of-range", at, message, fix)
    else:
        yield from _check_stated(context, found, at, rises, outside)
    yield from _check_depth(context, layers)


def _check_stated(
    context: CheckContext, found: Found, at: str, rises: bool, outside: Sequence[int]
) -> Iterator[Diagnostic]:
    ids, layers = found.value, context.target("num_hidden_layers")
    inputs = found.origin.inputs if found.origin.kind == "checkpoint" else ()
    read_as = f" (read as {inputs[0]})" if inputs else ""
    if not rises:
        message = f"the layer ids {ids} must increase strictly"
        yield finding("layer-ids-not-increasing", at, message, "correct the config.json")
    if outside:
        limit = f"the target has {layers} layers, so boundaries run from 0 to {layers}" if layers else "ids start at 0"
        yield finding("layer-id-out-of-range", at, f"boundary {outside[0]}{read_as} is out of range: {limit}", FIX)


def _check_depth(context: CheckContext, layers: int | None) -> Iterator[Diagnostic]:
    claimed = context.fact("num_target_layers")
    if claimed is not None and layers is not None and claimed != layers:
        message = f"the draft was trained for a target of {claimed} layers, but this target has {layers}"
        yield finding(
            "target-layers-differ",
            context.at("num_target_layers"),
            message,
            "use a draft that was trained for this target",
        )


def check_hidden_size(context: CheckContext) -> Iterator[Diagnostic]:
    """Whether the draft reads hidden states of the target's width, by its config and by the tensor that takes them.

    ``target_hidden``: facts of which the first that is set must be the target's hidden size; ``feature_projection``: a
    tensor that takes ``features`` (or ``count``) hidden states side by side, which is better evidence where it is known.
    """
    names: Sequence[str] = context.rules.get("target_hidden") or ()
    target, rule = context.target("hidden_size"), context.rules.get("feature_projection")
    name = next((n for n in names if context.fact(n) is not None), None)
    stated = name is not None and name == names[0]
    known = rule is not None and len((context.shapes or {}).get(rule["tensor"], ())) == 2
    findings: list[Diagnostic] = []
    if target is not None and name is not None and (stated or not known) and context.fact(name) != target:
        key = context.at(name).removeprefix("draft.")
        message = (
            f"the draft reads hidden states of width {context.fact(name)} ({key}), but the target's have width {target}"
        )
        findings.append(finding("hidden-size-mismatch", context.at(name), message, FIX))
    elif rule is not None and known and (target or name):
        findings += _check_projection(context, rule, target or context.fact(str(name)))
    yield from findings or check_own_embeddings(context)


def _check_projection(context: CheckContext, rule: Mapping[str, Any], width: int) -> Iterator[Diagnostic]:
    shape, own = (context.shapes or {})[rule["tensor"]], context.fact("hidden_size")
    stated, usual = _feature_counts(context, rule)
    if shape[1] in {count * width for count in (stated or usual)} and not _fits_own(
        shape[1], own, width, stated, usual
    ):
        return
    if shape[1] % width or _fits_own(shape[1], own, width, stated, usual):
        message = f"{rule['tensor']} takes {shape[1]} values, which are not hidden states of the target's width {width}"
        yield finding("hidden-size-mismatch", "draft.hidden_size", message, FIX)
    elif stated or len(usual) > 1:
        count = (stated or usual[1:])[0]
        message = f"{count} hidden states of width {width} are {count * width} values, but {rule['tensor']} has shape {list(shape)}"
        at = context.at(rule["features"]) if "features" in rule else "draft.hidden_size"
        yield finding(MISMATCH, at, message, "name as many layers as the draft was trained with")


def _feature_counts(context: CheckContext, rule: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """How many states the projection takes: what user or draft say, and what drafts of this kind take by default."""
    if "features" not in rule:
        return [rule["count"]], []
    if context.chosen_layers is not None:
        return [len(context.chosen_layers)], []
    found = context.facts.get(rule["features"])
    if found is not None and found.origin.kind == "checkpoint":
        return [len(found.value)] if found.value else [], []
    default = (context.rules.get("aux_layers") or {}).get("default_count")
    return [], [*([default] if default else ()), *([len(found.value)] if found is not None else ())]


def _fits_own(width: int, own: int | None, target: int, stated: list[int], usual: list[int]) -> bool:
    """Whether the projection fits a target as wide as the draft itself, and the given target only by coincidence."""
    first = (stated or usual)[:1]
    return own not in (None, target) and bool(first) and width == first[0] * (own or 0) and width != first[0] * target
