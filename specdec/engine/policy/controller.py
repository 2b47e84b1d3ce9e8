"""How many tokens to draft and to verify: one policy with two objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from specdec.engine.policy.accounts import CATCH_UP, Account
from specdec.engine.policy.confidences import Confidences
from specdec.engine.policy.lengths import Widths, above_threshold, cut, rows_of
from specdec.engine.policy.step_costs import MeasuredCosts, NominalCosts
from specdec.engine.policy.trimming import Round, trim_for_latency, trim_for_throughput

CHEAP = 0.05  # plain steps: below this, all drafts are drawn and cut before they are verified
RARELY_PLAIN = {"stale": 640, "enough": 2}  # a batch that drafts loses most by a step without drafts


class DraftController:
    """Chooses how many tokens are drafted and verified for each request.

    Drafts that cost next to nothing are all drawn; ``trim`` then keeps those that raise the batch's expected tokens per
    measured cost. A draft is judged by the confidence it came with, else by an estimate, shifted by how the request's
    drafts fared. Dear drafts are judged before they are drawn.

    For the latency of each request, losses against plain decoding are accounted per request, those by the drafts of
    others in its batch included; a round that could take them beyond ``budget`` of the tokens it emitted is not
    drafted. While requests wait for a slot (``crowded``), drafts are charged to the requests that drafted instead:
    slowing some down then serves all. For the ``throughput`` of the batch (adaptive verification) nobody keeps
    accounts: rows go to the drafts that likeliest survive, of whatever request.

    ``always`` draws all drafts, whatever they cost. ``threshold``: drafts from the first on whose own confidence is
    below it are not verified. ``widths``: rows that a request takes in padded forwards; None where rows are packed.

    Choices depend on earlier tokens and clocks only, so they keep every verification mode lossless. Greedy and coupled
    outputs do not depend on them at all; a request that ``is_reproducible`` is judged by nominal costs and by itself,
    so that equal seeds give equal outputs in the other sampled modes too.
    """

    def __init__(
        self,
        max_drafts: int,
        *,
        budget: float = 0.012,
        nominal: NominalCosts | None = None,
        is_reproducible: Callable[[Any], bool] = lambda request: False,
        throughput: bool = False,
        threshold: float = 0.0,
        always: bool = False,
        widths: Widths | None = None,
    ) -> None:
        self.max_drafts, self.budget, self.throughput, self.threshold = max_drafts, budget, throughput, threshold
        self.always, self.widths = always, widths
        self.nominal = nominal or NominalCosts()
        self.measured = MeasuredCosts(self.nominal, **(RARELY_PLAIN if throughput else {}))
        self.confidences = Confidences(max_drafts)
        self._is_reproducible = is_reproducible
        self._is_cheap = self.nominal.draft(1, max_drafts) <= CHEAP
        self._accounts: dict[int, Account] = {}  # by Request.index
        self.crowded = False  # requests wait for a slot: the batch's tokens per second count, not each one's
        self._drawn = 0  # the most drafts drawn for a request of the forward to come
        self._catches_up = False  # they began with a prompt, or with what was emitted while nothing was drafted

    def choose(self, request: Any, batch_size: int = 1, most: int | None = None) -> int:
        """Drafts to draw for the request's next step, 0 to ``most``; ``request`` needs ``index``."""
        most, account = self.max_drafts if most is None else most, self._account(request)
        draws_all = self._is_cheap or self.always
        account.wanted = most if draws_all else min(most, self._worth_drawing(account, batch_size))
        self._catches_up |= account.wanted > 0 and account.drawn.idle > CATCH_UP
        return account.wanted

    def trim(self, requests: Sequence[Any]) -> None:
        """Shorten the drafts of requests about to be verified together to those that pay."""
        accounts = [self._account(request) for request in requests]
        for request, account in zip(requests, accounts, strict=True):
            account.is_free = request.drafts_free
            if request.drafts:
                account.confidences = self.confidences.of(request, account)
                if self.threshold:
                    cut(request, above_threshold(account.confidences, self.threshold))
        drafting = self._drafting_cost(accounts)
        round_ = Round(requests, accounts, self.measured, self.budget, drafting, self.widths, self.confidences.expected)
        if self.throughput:
            trim_for_throughput(round_)
        else:
            trim_for_latency(round_, self.crowded)
        if self._drawn:
            self._charge_drafting(accounts, drafting)

    def observe(self, request: Any, drafted: int, accepted: int) -> None:
        """A step verified ``drafted`` tokens of the request and accepted ``accepted``."""
        account = self._account(request)
        self.confidences.observe(account, drafted, accepted)
        account.settle(drafted, accepted)

    def observe_forward(self, requests: int, rows: int, seconds: float, draft_seconds: float) -> None:
        """A decode forward of so many requests took ``seconds`` over ``rows`` rows, padding included; its drafts the other."""
        self.measured.add(requests, rows, seconds)
        if self._drawn and not self._catches_up:
            self.measured.add_draft(requests, self._drawn, draft_seconds)
        self._drawn, self._catches_up = 0, False

    def finish(self, request: Any) -> None:
        """Forget a request."""
        self._accounts.pop(request.index, None)

    def _account(self, request: Any) -> Account:
        account = self._accounts.get(request.index)
        if account is None:
            costs = self.nominal if not self.throughput and self._is_reproducible(request) else None
            account = self._accounts[request.index] = Account(costs)
        return account

    def _worth_drawing(self, account: Account, batch_size: int) -> int:
        """The k with the most expected tokens per cost, if requests all drafted like this one."""
        costs, size = (self.measured, batch_size) if account.costs is None else (account.costs, 1)
        if account.costs is None and self.measured.plain_is_stale(size):
            return 0
        allowed = math.inf if self.throughput else account.allowed(self.budget)
        best, best_rate, expected, survival = 0, 1.0, 1.0, 1.0
        for k, acceptance in enumerate(account.drawn.rates(self.confidences.expected(account)), start=1):
            survival *= acceptance
            expected += survival
            drafting = costs.draft(size, k)
            rows = rows_of([1] * size, [k, *[0] * (size - 1)], self.widths)
            lost = drafting + size * (costs.step(size, rows) - 1.0)
            # the whole batch waits for one request's drafts
            if lost * size > allowed:
                break
            if expected / (1.0 + lost) > best_rate:
                best, best_rate = k, expected / (1.0 + lost)
        return best

    def _drafting_cost(self, accounts: Sequence[Account]) -> float:
        """Plain steps that the drafts of this round took."""
        asked = (account.wanted for account in accounts if not account.is_free)
        self._drawn = 0 if self._is_cheap else max(asked, default=0)
        return self.measured.draft(len(accounts), self._drawn) if self._drawn else 0.0

    def _charge_drafting(self, accounts: Sequence[Account], drafting: float) -> None:
        """All requests wait for a round of drafting; those that asked for it pay."""
        asked = [account for account in accounts if account.wanted and not account.is_free]
        for account in asked:
            shared = len(accounts) / len(asked) * drafting
            account.charge += shared if account.costs is None else account.costs.draft(1, account.wanted)
