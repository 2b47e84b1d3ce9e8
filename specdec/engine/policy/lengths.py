"""How many of its drafts each request of a batch keeps, so that the batch's tokens per second are highest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specdec.engine.requests import Request

Widths = Callable[[int], int]  # rows that a request of so many rows takes in a padded forward


class RowCosts(Protocol):
    """What a round costs by the number of rows that the target computes; any unit."""

    def seconds(self, rows: int) -> float | None:
        """None while too little was measured."""


def choose_lengths(
    confidences: Sequence[Sequence[float]],
    pending: Sequence[int],
    costs: RowCosts,
    *,
    patient: bool = False,
    most: int | None = None,
    widths: Widths | None = None,
) -> list[int]:
    """Drafts to verify per request, within ``most`` further rows in all; all of them while costs are unknown.

    Slots (request, step) are taken in the order of their survival, the product of the confidences up to the step,
    while expected tokens per second rise, and no further (the early stop of arXiv:2607.05147, algorithm 1): whether a
    slot is verified then depends on the draft tokens before it only, which drafts that were drawn need to stay
    lossless. ``patient`` looks past a slot that does not pay for itself; for drafts that are not drawn. With ``widths``
    the forward is padded: a step costs the same for one request as for all, so its slots are taken together.
    """
    kept = [0] * len(confidences)
    before = rows_of(pending, widths=widths)
    cost = costs.seconds(before)
    if cost is None:
        return [len(row) for row in confidences]
    expected = float(len(confidences))
    best, taken = expected / max(cost, 1e-9), 0
    moves = list(_moves(confidences, pending, widths))
    for count, (gain, _, further) in enumerate(moves, start=1):
        if most is not None and further > most:
            break
        expected += gain
        rate = expected / max(costs.seconds(before + further) or cost, 1e-9)
        if rate > best:
            best, taken = rate, count
        elif not patient:
            break
    for _, requests, _ in moves[:taken]:
        for r in requests:
            kept[r] += 1
    return kept


def choose_budget(
    confidences: Sequence[Sequence[float]], pending: Sequence[int], costs: RowCosts, widths: Widths | None = None
) -> int:
    """Further rows with the most expected tokens per second, whatever lies between; the fewest on ties.

    For drafts that are drawn, the confidences must be older than these drafts: those of the round before.
    """
    kept = choose_lengths(confidences, pending, costs, patient=True, widths=widths)
    return rows_of(pending, kept, widths) - rows_of(pending, widths=widths)


def admit(
    confidences: Sequence[Sequence[float]], pending: Sequence[int], budget: int, widths: Widths | None = None
) -> list[int]:
    """Drafts to verify per request when ``budget`` further rows go to those that likeliest survive.

    Later steps of a request never displace an earlier one, so the current confidences may decide.
    """
    kept = [0] * len(confidences)
    for _, requests, further in _moves(confidences, pending, widths):
        if further > budget:
            break
        for r in requests:
            kept[r] += 1
    return kept


def above_threshold(confidences: Sequence[float], threshold: float) -> int:
    """Drafts before the first whose confidence is below ``threshold``; that one was not looked at to decide."""
    return next((i for i, confidence in enumerate(confidences) if confidence < threshold), len(confidences))


def rows_of(pending: Sequence[int], kept: Sequence[int] = (), widths: Widths | None = None) -> int:
    """Rows that the target computes for requests of ``pending`` tokens and ``kept`` drafts."""
    counts = [p + k for p, k in zip(pending, kept, strict=True)] if kept else pending
    return sum(counts) if widths is None else len(counts) * widths(max(counts))


def rank(survival: float, step: int, request: int) -> tuple[float, int, int]:
    """Order of slots; ties go to earlier steps first: with the opposite order the output would be biased."""
    return -survival, step, request


def _moves(
    confidences: Sequence[Sequence[float]], pending: Sequence[int], widths: Widths | None
) -> Iterator[tuple[float, list[int], int]]:
    """Slots in the order they are taken: expected tokens gained, requests, further rows computed so far."""
    slots = []
    for r, row in enumerate(confidences):
        survival = 1.0
        for step, confidence in enumerate(row):
            survival *= confidence
            slots.append((survival, step, r))
    if widths is None:
        slots.sort(key=lambda slot: rank(*slot))
        for further, (survival, _, r) in enumerate(slots, start=1):
            yield survival, [r], further
        return
    before, longest = rows_of(pending, widths=widths), max(pending)
    for step in range(max(map(len, confidences), default=0)):
        group = [(survival, r) for survival, s, r in slots if s == step]
        further = len(pending) * widths(longest + step + 1) - before
        yield sum(survival for survival, _ in group), [r for _, r in group], further


def cut(request: Request, count: int) -> None:
    """Keep the first ``count`` drafts of a request."""
    if count >= len(request.drafts):
        return
    request.drafts = request.drafts[:count]
    request.draft_logits = request.draft_logits[:count] if request.draft_logits is not None and count else None
    request.confidences = request.confidences[:count] if request.confidences is not None else None
