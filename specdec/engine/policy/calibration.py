"""What a drafter's confidences are worth for one request, learned from what was accepted of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

_FORGET = 0.98  # weight of an older round
_VARIANCE = 1.0  # of the shift between requests
_FURTHEST, _LONGEST_MOVE = 4.0, 1.5
_SUREST = 0.97  # confidences beyond this, and below its opposite, claim more than anyone knows


class Calibration:
    """Shifts confidences on the log-odds scale: one number a request, so that a few rounds suffice to learn it."""

    __slots__ = ("_factor", "_information", "shift")

    def __init__(self) -> None:
        self.shift = 0.0
        self._factor = 1.0  # exp(shift)
        self._information = 0.0

    def predict(self, confidences: Sequence[float]) -> list[float]:
        """Acceptance probability of each draft, given that those before it are accepted."""
        factor, out = self._factor, []
        for confidence in confidences:
            p = min(max(confidence, 1.0 - _SUREST), _SUREST)
            out.append(p * factor / (1.0 - p + p * factor))
        return out

    def observe(self, confidences: Sequence[float], accepted: int) -> None:
        """A round verified drafts of these confidences, as the drafter gave them, and accepted so many."""
        gradient = curvature = 0.0
        for i, p in enumerate(self.predict(confidences[: accepted + 1])):
            gradient += (i < accepted) - p
            curvature += p * (1.0 - p)
        self._information = self._information * _FORGET + curvature
        move = gradient / (self._information + 1.0 / _VARIANCE)
        move = min(max(move, -_LONGEST_MOVE), _LONGEST_MOVE)
        self.shift = min(max(self.shift + move, -_FURTHEST), _FURTHEST)
        self._factor = math.exp(self.shift)
