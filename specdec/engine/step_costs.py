"""What a verify forward and a round of drafting cost, in units of one plain decoding step."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specdec.config.speculative import SpeculativeConfig

VERIFY_PER_TOKEN = 0.12  # plain steps that a further row costs, where nothing is measured
_SAMPLES = 9  # a median of these shrugs off a few disturbed steps
_FRESH = 64  # steps, for each timing there is, after which bad timings count no longer: a disturbed one may not decide for good


class Costs(Protocol):
    """Costs relative to a plain step of the same batch size."""

    def verify(self, width: int) -> float | None:
        """A forward of ``width`` tokens a request; None while plain steps are unmeasured."""

    def draft(self, k: int) -> float:
        """Drafting ``k`` tokens."""


class NominalCosts:
    """Fixed costs, for requests whose output must not depend on a clock.

    The defaults are on the dear side (native CPU kernels, 8 rows: 2.0 plain steps), so that drafts that barely pay are
    not drawn.
    """

    def __init__(
        self, verify_per_token: float = VERIFY_PER_TOKEN, draft_per_token: float = 0.02, draft_per_round: float = 0.0
    ) -> None:
        self.verify_per_token = verify_per_token
        self.draft_per_token, self.draft_per_round = draft_per_token, draft_per_round

    @classmethod
    def of(cls, config: SpeculativeConfig) -> NominalCosts:
        """From what a configuration knows: a forward of the draft costs its weights' share of the target's."""
        draft, target = config.get("resources.draft_weight_bytes"), config.get("target.weight_bytes")
        share = draft / target if draft and target else 0.02
        if config.capabilities.get("parallel_by_construction", False):
            return cls(draft_per_token=0.0, draft_per_round=share)
        return cls(draft_per_token=share)

    def verify(self, width: int) -> float:
        return 1.0 + self.verify_per_token * (width - 1)

    def draft(self, k: int) -> float:
        return self.draft_per_round + self.draft_per_token * k if k else 0.0


class MeasuredCosts:
    """Medians of recent steps; between measured sizes interpolated, wider ones presumed dearer, fewer drafts cheaper."""

    def __init__(self) -> None:
        self._verify: dict[int, deque[tuple[int, float]]] = {}  # width -> (step, seconds)
        self._draft: dict[int, deque[float]] = {}
        self._steps = 0
        self._age_of_plain = 0  # steps since a plain step was timed

    def add(self, width: int, verify_seconds: float, k: int, draft_seconds: float) -> None:
        """A step verified ``width`` tokens; its ``k`` drafts took ``draft_seconds``."""
        self._steps += 1
        self._verify.setdefault(width, deque(maxlen=_SAMPLES)).append((self._steps, verify_seconds))
        self._age_of_plain = 0 if width == 1 else self._age_of_plain + 1
        if k > 0:
            self._draft.setdefault(k, deque(maxlen=_SAMPLES)).append(draft_seconds)

    def plain_is_stale(self, after: int) -> bool:
        """True when no plain step was timed yet, or none among the last ``after``; contexts grow, machines drift."""
        return len(self._verify.get(1, ())) < 2 or self._age_of_plain >= after

    @property
    def plain_seconds(self) -> float | None:
        """Seconds of one plain step."""
        return median(seconds for _, seconds in self._verify[1]) if 1 in self._verify else None

    def verify(self, width: int) -> float | None:
        plain = self.plain_seconds
        if plain is None:
            return None
        known = {size: self._width_cost(size, plain) for size in self._verify}
        unmeasured = max(0, width - max(known))
        return max(1.0, interpolated(known, width)) + VERIFY_PER_TOKEN * unmeasured

    def _width_cost(self, width: int, plain: float) -> float:
        """A timed width in plain steps; timings that were not renewed for long only count when they are good."""
        times = self._verify[width]
        cost = median(seconds for _, seconds in times) / plain
        is_stale = self._steps - times[-1][0] > _FRESH * len(times)
        return min(cost, 1.0 + VERIFY_PER_TOKEN * (width - 1)) if is_stale else cost

    def draft(self, k: int) -> float:
        plain = self.plain_seconds
        if plain is None or not self._draft:
            return 0.0
        known = {size: median(times) for size, times in self._draft.items()}
        smallest, largest = min(known), max(known)
        if k < smallest:
            return known[smallest] * k / smallest / plain
        if k > largest:
            return known[largest] * k / largest / plain
        return interpolated(known, k) / plain


def interpolated(values: Mapping[int, float], at: int) -> float:
    """Linear between the nearest known sizes, constant outside them."""
    below = max((size for size in values if size <= at), default=None)
    above = min((size for size in values if size >= at), default=None)
    if below is None or above is None:
        nearest = above if below is None else below
        assert nearest is not None
        return values[nearest]
    if below == above:
        return values[at]
    share = (at - below) / (above - below)
    return (1 - share) * values[below] + share * values[above]
