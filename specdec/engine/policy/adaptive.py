"""Adaptive verification: per request, how many of its drafts are worth a row of the next verify forward."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Protocol

import torch

from specdec.engine.policy.lengths import RowCosts, choose_lengths, cut
from specdec.engine.requests import Request
from specdec.verify.estimator import AcceptanceEstimator, ConfidenceEstimator

SAMPLES = 9  # timings kept per row count
FEATURE_BOUND = 40.0


class ObservedRowCosts(RowCosts, Protocol):
    """Seconds of a verify forward by its number of rows, learned from what is observed."""

    def observe(self, rows: int, seconds: float) -> None:
        """A forward over ``rows`` rows took this long."""


class MeasuredRowCosts:
    """Medians of recent forwards, made monotone and interpolated; costs above the largest measured count grow on."""

    def __init__(self) -> None:
        self.held: dict[int, deque[float]] = {}

    def observe(self, rows: int, seconds: float) -> None:
        self.held.setdefault(rows, deque(maxlen=SAMPLES)).append(seconds)

    def seconds(self, rows: int) -> float | None:
        if len(self.held) < 2:
            return None
        points: list[tuple[int, float]] = []
        for count in sorted(self.held):
            cost = median(self.held[count])
            points.append((count, max(cost, points[-1][1]) if points else cost))
        for (a, cost_a), (b, cost_b) in pairwise(points):
            if rows <= b or b == points[-1][0]:
                share = max(0.0, (rows - a) / (b - a))
                return cost_a + share * (cost_b - cost_a)
        return points[-1][1]


class AdaptiveVerification:
    """Trims drafts before they are verified; keeps what it needs to know about acceptance."""

    def __init__(self, k: int, costs: ObservedRowCosts | None = None) -> None:
        self.costs = costs or MeasuredRowCosts()
        self.by_position = AcceptanceEstimator(k)
        self.by_certainty = ConfidenceEstimator(k)
        self._made: dict[int, tuple[list[float], list[float]]] = {}  # request index -> (features, predictions)

    def trim(self, requests: Sequence[Request]) -> None:
        """Shorten the drafts of requests about to be verified together."""
        confidences = [self.confidences(request) if request.drafts else [] for request in requests]
        kept = choose_lengths(confidences, [request.num_pending for request in requests], self.costs)
        for request, count in zip(requests, kept, strict=True):
            cut(request, count)

    def confidences(self, request: Request) -> list[float]:
        """The draft's own confidences, else an estimate from its logits, else from the acceptance of each position."""
        count = len(request.drafts)
        if request.confidences is not None and not any(c != c for c in request.confidences):  # nan: not known
            return request.confidences[:count]
        if request.draft_logits is not None:
            features = certainty(request.draft_logits, request.params.temperature)
            predicted = self.by_certainty.predict(features)
            self._made[request.index] = (features, predicted)
            return predicted
        return self.by_position.conditional()[:count]

    def observe(self, request: Request, drafted: int, accepted: int) -> None:
        """A round verified ``drafted`` tokens of the request and accepted ``accepted``."""
        self.by_position.observe(accepted, drafted)
        if made := self._made.pop(request.index, None):
            self.by_certainty.observe(*made, accepted, drafted)

    def observe_forward(self, rows: int, seconds: float) -> None:
        """A decode forward over ``rows`` rows took ``seconds``."""
        self.costs.observe(rows, seconds)

    def finish(self, request: Request) -> None:
        """Forget a request."""
        self._made.pop(request.index, None)


def certainty(logits: torch.Tensor, temperature: float) -> list[float]:
    """Log-odds of the likeliest token of each draft row [K, V]; it does not look at the token that was drawn."""
    scaled = logits.float() / (temperature or 1.0)
    top = scaled.amax(-1, keepdim=True)
    others = (scaled - top).exp().sum(-1) - 1.0
    return (-others.clamp(min=0).log()).clamp(-FEATURE_BOUND, FEATURE_BOUND).tolist()
