"""Online estimates of acceptance per position, from what verification reports; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class AcceptanceEstimator:
    """Decayed counts of trials and successes per position, given that all positions before it were accepted.

    A prior of ``prior_weight`` trials at rate ``prior`` keeps early estimates calm; ``half_life`` is in observed rounds.
    """

    k: int
    prior: float = 0.5
    prior_weight: float = 2.0
    half_life: float = 64.0
    trials: list[float] = field(init=False)
    successes: list[float] = field(init=False)

    def __post_init__(self) -> None:
        if self.k < 0 or not 0 <= self.prior <= 1 or self.half_life <= 0 or self.prior_weight < 0:
            raise ValueError("an acceptance estimator needs k >= 0, prior in [0, 1], half_life > 0, prior_weight >= 0")
        self.trials, self.successes = [0.0] * self.k, [0.0] * self.k

    def observe(self, num_accepted: int, num_verified: int) -> None:
        """Record one round: ``num_accepted`` of ``num_verified`` drafts; positions after a rejection say nothing."""
        if not 0 <= num_accepted <= num_verified <= self.k:
            raise ValueError(f"observed {num_accepted} accepted of {num_verified} drafts with k = {self.k}")
        if not num_verified:
            return
        keep = 0.5 ** (1.0 / self.half_life)
        for i in range(self.k):
            self.trials[i] *= keep
            self.successes[i] *= keep
        for i in range(min(num_accepted + 1, num_verified)):
            self.trials[i] += 1.0
            self.successes[i] += float(i < num_accepted)

    def conditional(self) -> list[float]:
        """Acceptance of each position given that all before it were accepted."""
        out = []
        for trials, successes in zip(self.trials, self.successes, strict=True):
            weight = trials + self.prior_weight
            out.append((successes + self.prior * self.prior_weight) / weight if weight else self.prior)
        return out

    def unconditional(self) -> list[float]:
        """Share of rounds in which each position is accepted."""
        out, product = [], 1.0
        for rate in self.conditional():
            product *= rate
            out.append(product)
        return out

    def expected_tokens(self, k: int | None = None) -> float:
        """Tokens a round of k drafts is expected to emit, the target's own included."""
        return 1.0 + sum(self.unconditional()[: self.k if k is None else k])


@dataclass
class ConfidenceEstimator:
    """Turns a draft's own certainty into an acceptance probability: sigmoid(slope * feature + intercept[step]).

    The feature of a draft step is the log-odds of the *largest* draft probability, never of the drawn token: a choice
    that looks at the drawn token would bias the output. Refits by one damped, ridge-regularised Newton step every
    ``refit_every`` observations.
    """

    k: int
    slope: float = 0.5
    intercept: float = -0.2
    refit_every: int = 100
    damping: float = 50.0
    ridge: float = 1e-3
    intercepts: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.intercepts = [self.intercept] * self.k
        self._reset()

    def _reset(self) -> None:
        self._a, self._rounds = 0.0, 0
        self._b, self._c, self._g1, self._n = ([0.0] * self.k for _ in range(4))
        self._g0 = 0.0

    def predict(self, features: Sequence[float]) -> list[float]:
        """Acceptance probability of each step, given that all before it were accepted."""
        return [_sigmoid(self.slope * f + self.intercepts[i]) for i, f in enumerate(features)]

    def observe(
        self, features: Sequence[float], predicted: Sequence[float], num_accepted: int, num_verified: int
    ) -> None:
        """Record one round with the features and predictions made when it was drafted."""
        for i in range(min(num_accepted + 1, num_verified, len(features))):
            f, p = features[i], predicted[i]
            weight, error = p * (1.0 - p), float(i < num_accepted) - p
            self._a += weight * f * f
            self._b[i] += weight * f
            self._c[i] += weight
            self._g0 += error * f
            self._g1[i] += error
            self._n[i] += 1.0
        self._rounds += 1
        if self._rounds >= self.refit_every:
            self._refit()

    def _refit(self) -> None:
        c = [x + self.ridge for x in self._c]
        curvature = self._a + self.ridge - sum(b * b / x for b, x in zip(self._b, c, strict=True))
        gradient = self._g0 - sum(b * g / x for b, g, x in zip(self._b, self._g1, c, strict=True))
        total = sum(self._n)
        step = gradient / curvature * total / (total + self.damping) if curvature else 0.0
        if not math.isfinite(step) or self.slope + step < 0:
            step = 0.0
        self.slope += step
        for i in range(self.k):
            move = (self._g1[i] - self._b[i] * step) / c[i] * self._n[i] / (self._n[i] + self.damping)
            self.intercepts[i] += move if math.isfinite(move) else 0.0
        self._reset()


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
