"""What the draft policy remembers of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec.engine.policy.calibration import Calibration
from specdec.engine.policy.step_costs import NominalCosts

FREE_LOSS = 0.8  # tokens a request may lose before it emitted anything
MOST_CREDIT = 8.0  # tokens of gain that may be lost again later
SHORTEST_WAIT, LONGEST_WAIT = 64, 512  # tokens without drafts before one is tried whatever was learned
CATCH_UP = 8  # tokens without drafts after which the next draft first reads what it missed


@dataclass
class Worth:
    """What a request's drafts of one kind were worth."""

    calibration: Calibration = field(default_factory=Calibration)
    idle: int = SHORTEST_WAIT  # tokens since the last draft; a request starts with a probe, for texts differ
    wait: int = SHORTEST_WAIT

    @property
    def is_forgotten(self) -> bool:
        """After long without any draft, what was learned is set aside."""
        return self.idle >= self.wait

    def rates(self, confidences: Sequence[float]) -> Sequence[float]:
        """Acceptance of each draft given those before it."""
        return confidences if self.is_forgotten else self.calibration.predict(confidences)

    def observe(self, confidences: Sequence[float], drafted: int, accepted: int, charge: float) -> None:
        """A round verified so many drafts and accepted so many; it cost ``charge`` tokens."""
        if not drafted:
            self.idle += 1
            return
        if accepted > charge:
            self.wait = SHORTEST_WAIT
        elif self.is_forgotten:
            self.wait = min(2 * self.wait, LONGEST_WAIT)
        self.calibration.observe(confidences[:drafted], accepted)
        self.idle = 0


@dataclass
class Account:
    """Losses of a request against plain decoding, and what its drafts were worth so far."""

    costs: NominalCosts | None  # None = the measured ones
    drawn: Worth = field(default_factory=Worth)  # drafts that were asked for
    free: Worth = field(default_factory=Worth)  # drafts of a chain's members that cost nothing
    is_free: bool = False  # the drafts being verified cost nothing
    confidences: Sequence[float] = ()  # of the drafts being verified, as they came
    features: Sequence[float] = ()  # what those were estimated from
    last_rates: Sequence[float] = ()  # acceptance expected of the drafts of the round before
    wanted: int = 0  # drafts asked for in this round
    charge: float = 0.0  # tokens that this round costs
    loss: float = 0.0  # tokens lost to speculation so far; negative = gained
    emitted: int = 0

    @property
    def worth(self) -> Worth:
        """Of the kind of drafts being verified."""
        return self.free if self.is_free else self.drawn

    def rates(self, confidences: Sequence[float]) -> Sequence[float]:
        """Acceptance of each draft being verified, given those before it."""
        return self.worth.rates(confidences)

    def allowed(self, budget: float) -> float:
        """Tokens that the next round may lose if all its drafts fail."""
        return FREE_LOSS + budget * self.emitted - self.loss

    def settle(self, drafted: int, accepted: int) -> None:
        """Book a round that verified ``drafted`` tokens and accepted ``accepted``."""
        self.emitted += accepted + 1
        self.loss = max(self.loss + self.charge - accepted, -MOST_CREDIT)
        self.worth.observe(self.confidences, drafted, accepted, self.charge)
        (self.drawn if self.is_free else self.free).idle += accepted + 1
        self.wanted, self.charge, self.confidences, self.is_free = 0, 0.0, (), False
