"""How many of its drafts each request of a batch keeps, so that the batch's tokens per second are highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specdec.engine.requests import Request


class RowCosts(Protocol):
    """What a verify forward costs by its number of rows; any unit."""

    def seconds(self, rows: int) -> float | None:
        """None while too little was measured."""


def choose_lengths(
    confidences: Sequence[Sequence[float]],
    pending: Sequence[int],
    costs: RowCosts,
    *,
    patient: bool = False,
    most: int | None = None,
) -> list[int]:
    """Drafts to verify per request, ``most`` in all; all of them while costs are unknown.

    Slots (request, step) are taken in the order of their survival, the product of the confidences up to the step,
    while expected tokens per second rise, and no further (the early stop of arXiv:2607.05147, algorithm 1): whether a
    slot is verified then depends on the draft tokens before it only, which drafts that were drawn need to stay
    lossless. ``patient`` looks past a slot that does not pay for itself; for drafts that are not drawn.
    Ties go to earlier steps first: with the opposite order the output would be biased.
    """
    rows = sum(pending)
    cost = costs.seconds(rows)
    if cost is None:
        return [len(row) for row in confidences]
    slots = []
    for r, row in enumerate(confidences):
        survival = 1.0
        for step, confidence in enumerate(row):
            survival *= confidence
            slots.append((-survival, step, r))
    slots.sort()
    expected = float(len(confidences))
    best, taken = expected / max(cost, 1e-9), 0
    for count, (negative, _, _) in enumerate(slots[:most], start=1):
        expected -= negative
        rate = expected / max(costs.seconds(rows + count) or cost, 1e-9)
        if rate > best:
            best, taken = rate, count
        elif not patient:
            break
    kept = [0] * len(confidences)
    for _, _, r in slots[:taken]:
        kept[r] += 1
    return kept


def cut(request: Request, count: int) -> None:
    """Keep the first ``count`` drafts of a request."""
    if count >= len(request.drafts):
        return
    request.drafts = request.drafts[:count]
    request.draft_logits = request.draft_logits[:count] if request.draft_logits is not None and count else None
    request.confidences = request.confidences[:count] if request.confidences is not None else None
