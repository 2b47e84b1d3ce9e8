"""How many tokens to draft for a request, so that speculation pays and never costs more than a small budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.engine.policy.calibration import Calibration
from specdec.engine.policy.lengths import choose_lengths, cut
from specdec.engine.policy.step_costs import Costs, MeasuredCosts, NominalCosts
from specdec.verify.estimator import AcceptanceEstimator

_FREE_LOSS = 0.8  # tokens a request may lose before it emitted anything
_CAUTION = 1.15  # costs may be higher than they seem
_MOST_CREDIT = 8.0  # tokens of gain that may be lost again later
_PRIOR = 0.6  # acceptance of drafts that come without confidences, while nothing is known of them
_CHEAP = 0.05  # plain steps: below this, all drafts are drawn and cut before they are verified
_SHORTEST_WAIT, _LONGEST_WAIT = 64, 512  # tokens without drafts before one is tried whatever was learned


@dataclass
class _RequestControl:
    costs: NominalCosts | None  # None = the measured ones
    calibration: Calibration = field(default_factory=Calibration)
    confidences: Sequence[float] = ()  # of the drafts being verified, as they came
    wanted: int = 0  # drafts asked for in this round
    charge: float = 0.0  # tokens that this round costs
    loss: float = 0.0  # tokens lost to speculation so far; negative = gained
    emitted: int = 0
    idle: int = _SHORTEST_WAIT  # tokens since the last draft; a request starts with a probe, for texts differ
    wait: int = _SHORTEST_WAIT

    def rates(self, confidences: Sequence[float]) -> Sequence[float]:
        """Acceptance of each draft given those before it; after long without any, what was learned is set aside."""
        return confidences if self.idle >= self.wait else self.calibration.predict(confidences)


class DraftController:
    """Chooses how many tokens are drafted and verified for each request.

    Drafts that cost next to nothing are all drawn; ``trim`` then keeps those that raise the batch's expected tokens per
    measured cost. A draft is judged by the confidence it came with, else by what its position was worth so far, shifted
    by how the request's drafts fared. Dear drafts are judged before they are drawn. Losses against plain decoding are
    accounted per request, those by the drafts of others in its batch included; a round that could take them beyond
    ``budget`` of the tokens it emitted is not drafted. While requests wait for a slot (``crowded``), drafts are charged
    to the requests that drafted instead: slowing some down then serves all.

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
    ) -> None:
        self.max_drafts, self.budget = max_drafts, budget
        self._nominal = nominal or NominalCosts()
        self._measured = MeasuredCosts(self._nominal)
        self._is_reproducible = is_reproducible
        self._is_cheap = self._nominal.draft(1, max_drafts) <= _CHEAP
        self._requests: dict[int, _RequestControl] = {}  # by Request.index
        self._by_position = AcceptanceEstimator(max_drafts, prior=_PRIOR)  # of all requests but reproducible ones
        self.crowded = False  # requests wait for a slot: the batch's tokens per second count, not each one's
        self._drawn = 0  # the most drafts drawn for a request of the forward to come

    def choose(self, request: Any, batch_size: int = 1) -> int:
        """Drafts to draw for the request's next step, 0 to ``max_drafts``; ``request`` needs ``index``."""
        control = self._control(request)
        control.wanted = self.max_drafts if self._is_cheap else self._worth_drawing(control, batch_size)
        return control.wanted

    def trim(self, requests: Sequence[Any]) -> None:
        """Shorten the drafts of requests about to be verified together to those that pay."""
        rows = [1] * len(requests)
        joint = []
        for i, request in enumerate(requests):
            control = self._control(request)
            if control.costs is None:
                joint.append(i)
            if request.drafts:
                control.confidences = self._confidences(control, request)
                if control.costs is not None:
                    rows[i] += self._trim_alone(request, control, control.costs)
        if any(requests[i].drafts for i in joint):
            self._trim_together(requests, joint, rows)
        if not self._is_cheap:
            self._charge_drafting(requests)

    def observe(self, request: Any, drafted: int, accepted: int) -> None:
        """A step verified ``drafted`` tokens of the request and accepted ``accepted``."""
        control = self._control(request)
        control.emitted += accepted + 1
        control.loss = max(control.loss + control.charge - accepted, -_MOST_CREDIT)
        if drafted:
            if accepted > control.charge:
                control.wait = _SHORTEST_WAIT
            elif control.idle >= control.wait:
                control.wait = min(2 * control.wait, _LONGEST_WAIT)
            control.calibration.observe(control.confidences[:drafted], accepted)
            if control.costs is None:
                self._by_position.observe(accepted, drafted)
        control.idle = 0 if drafted else control.idle + 1
        control.wanted, control.charge = 0, 0.0

    def observe_forward(self, requests: int, rows: int, seconds: float, draft_seconds: float) -> None:
        """A decode forward of so many requests over ``rows`` rows took ``seconds``; its drafts took ``draft_seconds``."""
        self._measured.add(requests, rows, seconds)
        if self._drawn:
            self._measured.add_draft(requests, self._drawn, draft_seconds)
            self._drawn = 0

    def finish(self, request: Any) -> None:
        """Forget a request."""
        self._requests.pop(request.index, None)

    def _control(self, request: Any) -> _RequestControl:
        control = self._requests.get(request.index)
        if control is None:
            costs = self._nominal if self._is_reproducible(request) else None
            control = self._requests[request.index] = _RequestControl(costs)
        return control

    def _worth_drawing(self, control: _RequestControl, batch_size: int) -> int:
        """The k with the most expected tokens per cost, if requests all drafted like this one."""
        costs, size = (self._measured, batch_size) if control.costs is None else (control.costs, 1)
        if control.costs is None and self._measured.plain_is_stale(size):
            return 0
        best, best_rate, expected, survival = 0, 1.0, 1.0, 1.0
        for k, acceptance in enumerate(control.rates(self._opinion(control)), start=1):
            survival *= acceptance
            expected += survival
            lost = costs.draft(size, k) + size * (costs.step(size, size + k) - 1.0)
            # the whole batch waits for one request's drafts
            if lost * size > self._allowed(control):
                break
            if expected / (1.0 + lost) > best_rate:
                best, best_rate = k, expected / (1.0 + lost)
        return best

    def _opinion(self, control: _RequestControl) -> list[float]:
        """Acceptance by position where drafts come without confidences."""
        if control.costs is not None or control.idle >= control.wait:
            return [_PRIOR] * self.max_drafts
        return self._by_position.conditional()

    def _confidences(self, control: _RequestControl, request: Any) -> Sequence[float]:
        given: list[float] | None = request.confidences
        count = len(request.drafts)
        if given is None:
            return self._opinion(control)[:count]
        if any(value != value for value in given):  # nan: some drafts came without
            opinion = self._opinion(control)
            return [opinion[i] if value != value else value for i, value in enumerate(given[:count])]
        return given

    def _allowed(self, control: _RequestControl) -> float:
        """Tokens that the request's next round may lose if all its drafts fail."""
        return _FREE_LOSS + self.budget * control.emitted - control.loss

    def _trim_alone(self, request: Any, control: _RequestControl, costs: Costs) -> int:
        most = _affordable(costs, 1, 1, self._allowed(control), len(request.drafts))
        rates = control.rates(control.confidences[:most])
        (kept,) = choose_lengths([rates], [1], _OfBatch(costs, 1), patient=request.draft_logits is None)
        cut(request, kept)
        control.charge = _CAUTION * (costs.step(1, 1 + kept) - 1.0)
        return kept

    def _trim_together(self, requests: Sequence[Any], joint: Sequence[int], rows: list[int]) -> None:
        """Cut the drafts of the requests ``joint``, beside others that will have ``rows`` anyway."""
        costs, size, fixed = self._measured, len(rows), sum(rows)
        controls = [self._control(requests[i]) for i in joint]
        rates: list[Sequence[float]] = [()] * size
        allowed = [self._allowed(control) for control in controls]
        idle = (mine for i, mine in zip(joint, allowed, strict=True) if not requests[i].drafts)
        # a request waits for the drafts of others as long as it may, and as it expects to gain by its own
        patience = math.inf if self.crowded else min(idle, default=math.inf)
        is_stale = fixed == size and costs.plain_is_stale(size)
        if not is_stale and _affordable(costs, size, fixed, patience, 1):
            for i, control, mine in zip(joint, controls, allowed, strict=True):
                count = len(requests[i].drafts)
                if self.crowded:
                    count = _affordable(costs, size, fixed, mine / size, count)
                if count:
                    rates[i] = control.rates(control.confidences[:count])
                    # confidences of drafts that were drawn may not decide about those before them
                    own = _expected(rates[i]) if size > 1 and requests[i].draft_logits is None else 0.0
                    patience = min(patience, mine + own)
        most = sum(map(len, rates))
        if not self.crowded:
            most = _affordable(costs, size, fixed, patience, most)
        one_hot = all(requests[i].draft_logits is None for i in joint)
        kept = choose_lengths(rates, rows, _OfBatch(costs, size), patient=one_hot, most=most)
        total = sum(kept)
        lost = _CAUTION * (costs.step(size, fixed + total) - costs.step(size, fixed))
        for i, control in zip(joint, controls, strict=True):
            control.charge = lost * size * kept[i] / total if self.crowded and total else lost
            cut(requests[i], kept[i])

    def _charge_drafting(self, requests: Sequence[Any]) -> None:
        """All requests wait for a round of drafting; those that asked for it pay."""
        controls = [self._control(request) for request in requests]
        asked = [control for control in controls if control.wanted]
        if not asked:
            return
        self._drawn = max(control.wanted for control in asked)
        shared = len(controls) / len(asked) * self._measured.draft(len(controls), self._drawn)
        for control in asked:
            control.charge += shared if control.costs is None else control.costs.draft(1, control.wanted)


def _expected(rates: Sequence[float]) -> float:
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


class _OfBatch:
    """Costs of forwards of ``size`` requests, as ``choose_lengths`` asks for them."""

    def __init__(self, costs: Costs, size: int) -> None:
        self._costs, self._size = costs, size

    def seconds(self, rows: int) -> float:
        """In plain steps."""
        return self._costs.step(self._size, rows)
