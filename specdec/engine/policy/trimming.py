"""Cuts the drafts of requests that are verified together to those that pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.engine.policy.accounts import Account
from specdec.engine.policy.lengths import Widths, admit, choose_budget, choose_lengths, cut, rows_of
from specdec.engine.policy.step_costs import Costs, MeasuredCosts

CAUTION = 1.15  # costs may be higher than they seem


@dataclass
class Round:
    """Requests with their drafts, and what verifying them costs."""

    requests: Sequence[Any]
    accounts: Sequence[Account]
    costs: MeasuredCosts
    budget: float  # share of its tokens that a request may lose
    drafting: float  # plain steps that drafting took
    widths: Widths | None
    expected: Callable[[Account], Sequence[float]]  # acceptance by position where nothing else is known

    def __post_init__(self) -> None:
        self.ones = [1] * len(self.requests)

    @property
    def drawn(self) -> bool:
        """Whether drafts were sampled: what decides about one must not depend on it."""
        return any(request.draft_logits is not None for request in self.requests)


class RoundCosts:
    """Costs of a round of ``size`` requests in plain steps, its drafts included."""

    def __init__(self, costs: Costs, size: int, drafting: float = 0.0) -> None:
        self._costs, self._size, self._drafting = costs, size, drafting

    def seconds(self, rows: int) -> float:
        return self._drafting + self._costs.step(self._size, rows)


def trim_for_throughput(r: Round) -> None:
    """Most expected tokens of the batch per second.

    Of drafts that were drawn, the number of rows is decided from the confidences of the round before; which drafts get
    them, from the current ones.
    """
    rates: list[Sequence[float]] = [
        account.rates(account.confidences[: len(request.drafts)]) if request.drafts else ()
        for request, account in zip(r.requests, r.accounts, strict=True)
    ]
    costs = RoundCosts(r.costs, len(r.ones), r.drafting)
    if r.costs.plain_is_stale(len(r.ones)):
        kept = [0] * len(rates)
    elif r.drawn:
        older = [_older(account, r.expected(account)) for account in r.accounts]
        kept = admit(rates, r.ones, choose_budget(older, r.ones, costs, r.widths), r.widths)
    else:
        kept = choose_lengths(rates, r.ones, costs, patient=True, widths=r.widths)
    for request, account, mine, count in zip(r.requests, r.accounts, rates, kept, strict=True):
        account.last_rates = mine
        cut(request, count)


def _trim_alone(request: Any, account: Account, costs: Costs, budget: float, widths: Widths | None) -> int:
    """Cut as if the request were alone; returns its drafts left."""
    if not request.drafts:
        return 0
    allowed = _affordable(costs, 1, 1, account.allowed(budget), rows_of([1], [len(request.drafts)], widths))
    rates = account.rates(account.confidences[: len(request.drafts)])
    one = RoundCosts(costs, 1)
    (kept,) = choose_lengths([rates], [1], one, patient=request.draft_logits is None, most=allowed, widths=widths)
    cut(request, kept)
    account.charge = CAUTION * (costs.step(1, rows_of([1], [kept], widths)) - 1.0)
    return kept


def trim_for_latency(r: Round, crowded: bool) -> None:
    """Most expected tokens per second, while no request loses more than it may.

    A request waits for the drafts of others as long as it may, and as it expects to gain by its own. Reproducible
    requests are judged first and by themselves.
    """
    fixed = [
        0 if account.costs is None else _trim_alone(request, account, account.costs, r.budget, r.widths)
        for request, account in zip(r.requests, r.accounts, strict=True)
    ]
    joint = [i for i, account in enumerate(r.accounts) if account.costs is None]
    if not any(r.requests[i].drafts for i in joint):
        return
    rows, size = [1 + count for count in fixed], len(fixed)
    before = rows_of(rows, widths=r.widths)
    rates: list[Sequence[float]] = [()] * size
    allowed = {i: r.accounts[i].allowed(r.budget) for i in joint}
    patience = math.inf
    if not crowded:
        patience = min((allowed[i] for i in joint if not r.requests[i].drafts), default=math.inf)
    is_stale = not any(fixed) and r.costs.plain_is_stale(size)
    if not is_stale and _affordable(r.costs, size, before, patience, 1):
        for i in joint:
            account, count = r.accounts[i], len(r.requests[i].drafts)
            if crowded:
                count = _affordable(r.costs, size, before, allowed[i] / size, count)
            if count:
                rates[i] = account.rates(account.confidences[:count])
                # confidences of drafts that were drawn may not decide about those before them
                own = _accepted(rates[i]) if size > 1 and r.requests[i].draft_logits is None else 0.0
                patience = min(patience, allowed[i] + own)
    most = rows_of(rows, [len(row) for row in rates], r.widths) - before
    if not crowded:
        most = _affordable(r.costs, size, before, patience, most)
    costs = RoundCosts(r.costs, size, r.drafting)
    kept = choose_lengths(rates, rows, costs, patient=not r.drawn, most=most, widths=r.widths)
    total = sum(kept)
    after = rows_of(rows, kept, r.widths)
    lost = CAUTION * (r.costs.step(size, after) - r.costs.step(size, before))
    for i in joint:
        r.accounts[i].charge = lost * size * kept[i] / total if crowded and total else lost
        cut(r.requests[i], kept[i])


def _older(account: Account, expected: Sequence[float]) -> list[float]:
    """Rates of the round before, for as many drafts as were asked for now."""
    held = list(account.last_rates[: account.wanted])
    return held + list(expected[len(held) : account.wanted])


def _accepted(rates: Sequence[float]) -> float:
    """Drafts accepted of those with these rates."""
    total, survival = 0.0, 1.0
    for rate in rates:
        survival *= rate
        total += survival
    return total


def _affordable(costs: Costs, size: int, rows: int, allowed: float, most: int) -> int:
    """Up to ``most`` rows more that cost at most ``allowed`` plain steps of a batch of ``size`` with ``rows`` rows."""
    before, count = costs.step(size, rows), 0
    while count < most and costs.step(size, rows + count + 1) - before <= allowed:
        count += 1
    return count
