"""How many tokens to draft for a request, so that speculation pays and never costs more than a small budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.engine.step_costs import Costs, MeasuredCosts, NominalCosts

_DECAY = 0.9  # weight of older drafting steps in a request's acceptance
_PRIOR_WEIGHT = 2.0  # steps that the prior counts for
_PRIOR_ACCEPTANCE = 0.6  # of a drafter nothing is known about
_FREE_LOSS = 1.0  # plain steps a request may lose before it emitted anything
_MAX_CREDIT = 8.0  # plain steps of gain that may be spent on losses later
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 256  # plain steps before drafting is tried again
_MOST_PATIENCE = 4  # pauses grow by at most this factor while probes fail
_REMEASURE_PLAIN = 160
_PROBE_OVERHEAD = 0.1  # plain steps a probe may cost


class _Acceptance:
    """Decayed conditional acceptance per draft position."""

    def __init__(self, positions: int) -> None:
        self.reached, self.accepted = [0.0] * positions, [0.0] * positions
        self.prior_weight = [_PRIOR_WEIGHT] * positions

    def observe(self, drafted: int, accepted: int) -> None:
        for i in range(min(drafted, accepted + 1, len(self.reached))):
            self.reached[i] = self.reached[i] * _DECAY + 1.0
            self.accepted[i] = self.accepted[i] * _DECAY + (i < accepted)
            self.prior_weight[i] *= _DECAY

    def rates(self, priors: Sequence[float] | None) -> list[float]:
        """Estimates per position; a position without observations is presumed like the one before it."""
        out: list[float] = []
        for i, (reached, accepted, weight) in enumerate(
            zip(self.reached, self.accepted, self.prior_weight, strict=True)
        ):
            prior = priors[i] if priors else out[-1] if out else _PRIOR_ACCEPTANCE
            out.append((accepted + weight * prior) / (reached + weight))
        return out


@dataclass
class _RequestControl:
    acceptance: _Acceptance
    emitted: int = 0
    loss: float = 0.0  # plain steps lost to speculation so far; negative = gained
    pause: int = 0  # plain steps left before the next try
    patience: int = 1  # doubles with each pause until drafting pays
    probing: bool = True  # draft once, whatever the estimate says
    costs: Costs = field(default_factory=NominalCosts)


class DraftController:
    """Chooses the number of drafts of each request before they are drawn.

    A request drafts the k with the best expected tokens per cost, given its running acceptance and measured costs; 0
    when none beats plain decoding. Its losses against plain decoding are accounted, and a step that could take them
    beyond ``budget`` of the tokens it emitted is not drafted. A pause ends with a probe; pauses grow while probes fail.

    Choices depend on earlier tokens and clocks only, so they keep every verification mode lossless. Greedy and coupled
    outputs do not depend on them at all; for a request that ``is_reproducible`` nominal costs replace the clock, so
    that equal seeds give equal outputs in the other sampled modes too.
    """

    def __init__(
        self,
        max_drafts: int,
        *,
        budget: float = 0.02,
        nominal: NominalCosts | None = None,
        is_reproducible: Callable[[Any], bool] = lambda request: False,
    ) -> None:
        self.max_drafts, self.budget = max_drafts, budget
        self._nominal = nominal or NominalCosts()
        self._is_reproducible = is_reproducible
        self._measured: dict[int, MeasuredCosts] = {}  # by batch size
        self._requests: dict[int, _RequestControl] = {}  # by Request.index
        self._shared = _Acceptance(self.max_drafts)  # of all requests, the prior of new ones

    def choose(self, request: Any, batch_size: int = 1) -> int:
        """Drafts for the request's next step, 0 to ``max_drafts``; ``request`` needs ``index``."""
        control = self._control(request)
        measured = None if control.costs is self._nominal else self._costs(batch_size)
        costs = measured or control.costs
        if measured is not None and measured.plain_is_stale(_REMEASURE_PLAIN):
            return 0
        if control.pause > 0:
            control.pause -= 1
            control.probing = control.pause == 0
            return 0
        k = self._probe(costs) if control.probing else self._best(control, costs)
        # the step must fit the budget even if all its drafts fail; the whole batch waits for one request's drafts,
        # but a reproducible request may not notice how many others there are
        allowed = (_FREE_LOSS + self.budget * control.emitted) / (1 if measured is None else batch_size)
        while k > 0 and control.loss + _overhead(costs, k) > allowed:
            k -= 1
        if k == 0:
            self._pause(control, costs)
        return k

    def observe(
        self,
        request: Any,
        drafted: int,
        accepted: int,
        draft_seconds: float,
        verify_seconds: float,
        width: int,
        batch_size: int = 1,
    ) -> None:
        """A step verified ``drafted`` tokens of the request; every row of the forward was ``width`` tokens wide."""
        control = self._control(request)
        costs: Costs = control.costs
        reproducible = costs is self._nominal
        if reproducible:
            control.loss += costs.draft(drafted)
        if width == drafted + 1:  # not the end of a prompt
            measured = self._costs(batch_size)
            measured.add(width, verify_seconds, drafted, draft_seconds)
            plain = measured.plain_seconds
            if not reproducible:
                costs = measured
                control.loss += draft_seconds / plain if plain else 0.0
        control.emitted += accepted + 1
        if drafted == 0:
            return
        # draft seconds were counted above, measured or nominal
        control.loss += _overhead(costs, drafted) - costs.draft(drafted) - accepted
        control.loss = max(control.loss, -_MAX_CREDIT)
        control.acceptance.observe(drafted, accepted)
        if control.costs is not self._nominal:
            self._shared.observe(drafted, accepted)
        if control.probing:
            control.probing = False
        elif accepted > _overhead(costs, drafted):
            control.patience = 1

    def finish(self, request: Any) -> None:
        """Forget a request."""
        self._requests.pop(request.index, None)

    def _probe(self, costs: Costs) -> int:
        """The most drafts that are cheap to try; one failed probe of all k would use up the budget of 50 tokens."""
        k = self.max_drafts
        while k > 1 and _overhead(costs, k) > _PROBE_OVERHEAD:
            k -= 1
        return k

    def _best(self, control: _RequestControl, costs: Costs) -> int:
        """The k with the highest expected tokens per cost; 0 = plain decoding."""
        best, best_rate = 0, 1.0
        expected, survives = 1.0, 1.0
        priors = None if control.costs is self._nominal else self._shared.rates(None)
        for k, acceptance in enumerate(control.acceptance.rates(priors), start=1):
            survives *= acceptance
            expected += survives
            rate = expected / (1.0 + _overhead(costs, k))
            if rate > best_rate:
                best, best_rate = k, rate
        return best

    def _control(self, request: Any) -> _RequestControl:
        control = self._requests.get(request.index)
        if control is None:
            control = self._requests[request.index] = _RequestControl(_Acceptance(self.max_drafts))
            # every request may start with a probe, whatever others were like: it is cheap, and texts differ
            control.costs = self._nominal if self._is_reproducible(request) else self._costs(1)
        return control

    def _pause(self, control: _RequestControl, costs: Costs) -> None:
        """Decode plainly for as long as pays for one failed probe out of half the budget."""
        steps = control.patience * _overhead(costs, self._probe(costs)) / (self.budget / 2)
        control.pause = round(min(max(steps, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        control.patience = min(2 * control.patience, _MOST_PATIENCE)

    def _costs(self, batch_size: int) -> MeasuredCosts:
        return self._measured.setdefault(batch_size, MeasuredCosts())


def _overhead(costs: Costs, k: int) -> float:
    """Plain steps that drafting and verifying ``k`` tokens costs on top of one."""
    return costs.draft(k) + (costs.verify(k + 1) or 1.0) - 1.0
