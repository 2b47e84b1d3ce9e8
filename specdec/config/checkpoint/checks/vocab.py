"""Vocabularies of a draft: sizes against the target's, and the map from draft ids to target ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.findings.diagnostics import Diagnostic, Severity

MAX_KEPT_MAP = 1024  # a longer map stays in the checkpoint; the finalized config only says that there is one
_SURELY = 64  # offsets of so many ids that rise at every step would skip a token between any two: they are target ids


def full_vocabulary(context: CheckContext) -> int | None:
    """The target's vocabulary size, or what the draft says it is."""
    size = context.target("vocab_size") or context.fact("vocab_size")
    return size if isinstance(size, int) else None


def check_sizes(context: CheckContext) -> Iterator[Diagnostic]:
    """``target_vocabulary``: the fact that must hold the target's vocabulary size."""
    fact = context.rules.get("target_vocabulary")
    ours = context.fact(fact) if fact else None
    reduced, target = context.fact("draft_vocab_size"), context.target("vocab_size")
    if ours is not None and target is not None and ours != target:
        key = context.at(str(fact)).removeprefix("draft.")
        if reduced == ours:
            message = f"{key} is {ours}, the draft's own vocabulary; this field must hold the target's vocabulary size, {target}"
            yield finding(
                "vocab-field-meaning",
                context.at(str(fact)),
                message,
                f"set {key}: {target} and keep draft_vocab_size: {ours}",
            )
        else:
            message = f"{key} is {ours}, but the target's vocabulary has {target} ids"
            yield finding(
                "vocab-size-differs", context.at(str(fact)), message, "use a draft that was trained for this target"
            )
    if reduced is not None and target is not None and reduced > target:
        message = f"draft_vocab_size is {reduced}, larger than the target's vocabulary of {target}"
        yield finding(
            "draft-vocab-too-large",
            context.at("draft_vocab_size"),
            message,
            "use a draft that was trained for this target",
        )


def check_reduced(context: CheckContext) -> Iterator[Diagnostic]:
    """``reduced_vocabulary``: what must be stored when the draft's vocabulary is a part of the target's."""
    needs = context.rules.get("reduced_vocabulary")
    reduced, full = context.fact("draft_vocab_size"), full_vocabulary(context)
    if not needs or context.shapes is None or reduced is None or full is None or reduced >= full:
        return
    for tensor in needs.get("needs", ()):
        if tensor not in context.shapes:
            message = f"the draft's vocabulary has {reduced} of the target's {full} ids, but the checkpoint has no {tensor} of its own"
            yield finding(
                "missing-tensor", "speculative.model", message, "use the checkpoint as it was trained, with this tensor"
            )
    for name in needs.get("maps", ()):
        if name not in context.shapes and context.checkpoint.vocab_map(name) is None:
            message = f"the draft's vocabulary has {reduced} of the target's {full} ids, but the checkpoint has no {name} to map them"
            told = context.listing_is_whole or {"fc.weight", "norm.weight", "lm_head.weight"} <= set(context.shapes)
            severity: Severity = "error" if told else "warning"
            fix = f"export {name} with the checkpoint"
            yield finding("missing-tensor", "speculative.model", message, fix, severity)


def check_map(context: CheckContext) -> Iterator[Diagnostic]:
    """``d2t`` against the vocabularies and against ``t2d``."""
    offsets = context.checkpoint.vocab_map("d2t")
    if offsets is None:
        return
    reduced = context.fact("draft_vocab_size")
    if reduced is not None and len(offsets) != reduced:
        message = f"d2t has {len(offsets)} entries, but draft_vocab_size is {reduced}"
        yield finding("d2t-length", "draft.d2t", message, "use the config.json that was saved with these weights")
    fault = map_fault(offsets, context.checkpoint.vocab_map("t2d"), full_vocabulary(context))
    if fault is not None:
        yield finding(fault[0], "draft.d2t", *fault[1:])


def map_fault(
    offsets: Sequence[int], members: Sequence[int] | None = None, full: int | None = None
) -> tuple[str, str, str] | None:
    """Code, message and fix of a bad ``d2t``, or None.

    It holds offsets: target id = draft id + d2t[draft id]; in range, strictly increasing, equal to the set bits of t2d.
    """
    ids = [i + offset for i, offset in enumerate(offsets)]
    if not ids:
        return None
    marked = None if members is None else [i for i, bit in enumerate(members) if bit]
    rising = offsets[0] >= 0 and all(b > a for a, b in pairwise(offsets)) and (full is None or offsets[-1] < full)
    absolute = rising if marked is None else marked == list(offsets) != ids
    store = "d2t seems to hold absolute ids: store d2t[i] - i"
    if full is not None and (max(ids) >= full or min(ids) < 0):
        worst = max(ids) if max(ids) >= full else min(ids)
        message = f"d2t is read as offsets (target id = draft id + offset) and gives id {worst}, outside the target's {full} ids"
        return "d2t-out-of-range", message, store if absolute else "export the map again"
    if marked is None and absolute and len(ids) >= _SURELY:
        message = (
            "d2t rises at every step, so it holds target ids, but it is read as offsets (target id = draft id + offset)"
        )
        return "d2t-absolute", message, "store d2t[i] - i"
    at = next((i for i, (a, b) in enumerate(pairwise(ids)) if b <= a), None)
    if at is not None:
        message = f"d2t maps draft ids {at} and {at + 1} to target ids {ids[at]} and {ids[at + 1]}; they must increase"
        return "d2t-not-increasing", message, "export the map again"
    if marked is not None and marked != ids:
        message = f"d2t maps to {len(ids)} target ids, and they are not the {len(marked)} ids that t2d marks"
        return "d2t-disagrees-with-t2d", message, store if absolute else "export both maps again"
    return None


def draft_to_target(context: CheckContext) -> list[int] | None:
    """Target id of each draft id, for a map short enough to show."""
    offsets = context.checkpoint.vocab_map("d2t")
    return [i + offset for i, offset in enumerate(offsets)] if offsets and len(offsets) <= MAX_KEPT_MAP else None
