"""What a verify forward and a round of drafting cost, in plain decoding steps of the same batch."""

from __future__ import annotations

from collections import deque
from statistics import median, median_low
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig

# of a plain step of one request, what a further row costs (native CPU kernels: 0.13 to 0.15; GPUs read weights meanwhile)
ROW_SHARE, GPU_ROW_SHARE = 0.14, 0.003
LOOKUP_SHARE = 0.001  # what a draft costs that no weights were read for
UNKNOWN_SHARE = 0.1  # what a draft costs whose weights are not known
_SAMPLES = 9  # a median of these shrugs off a few disturbed steps
_WIDE_SAMPLES = 24
_REFRESH = 4  # timings after which estimates are made anew
_NOISE = 0.04  # of a timing, in plain steps
_PRIOR_SPREAD = 0.5  # how far the nominal cost of a row may be off, as a share of a usual one
_UNKNOWN = 8  # steps without a plain one while few were timed


class Costs(Protocol):
    """Costs relative to a plain step of the same number of requests."""

    def step(self, requests: int, rows: int) -> float:
        """A forward over ``rows`` rows; 1.0 for one row a request."""

    def draft(self, requests: int, k: int) -> float:
        """A round of up to ``k`` drafts for each request."""


class NominalCosts:
    """Fixed costs: for requests whose output must not depend on a clock, and where nothing is measured yet."""

    def __init__(
        self, row_share: float = ROW_SHARE, draft_per_token: float = LOOKUP_SHARE, draft_per_round: float = 0.0
    ) -> None:
        self.row_share = row_share
        self.draft_per_token, self.draft_per_round = draft_per_token, draft_per_round

    @classmethod
    def of(cls, config: SpeculativeConfig, device: str = "cpu", target_bytes: int | None = None) -> NominalCosts:
        """From what a configuration knows: a pass of the draft costs the share of the target's weights that it reads.

        ``target_bytes``: weights as they run, which may be wider than in their file; None = as in the file.
        """
        per_token = per_round = 0.0
        for part in config.members or (config,):
            target = target_bytes or part.get("resources.target_weight_bytes")
            share = _pass_share(part.get("resources.draft_pass_bytes"), target)
            if part.get("resources.draft_passes") == 1:
                per_round += share
            else:
                per_token += share
        return cls(ROW_SHARE if device == "cpu" else GPU_ROW_SHARE, per_token, per_round)

    def step(self, requests: int, rows: int) -> float:
        return (1.0 + self.row_share * (rows - 1)) / (1.0 + self.row_share * (requests - 1))

    def draft(self, requests: int, k: int) -> float:
        return self.draft_per_round + self.draft_per_token * k if k else 0.0


class MeasuredCosts:
    """Medians of recent steps: seconds of a plain step by number of requests, and seconds that a further row costs.

    The latter are kept by the number of rows in powers of two, for all batch sizes together: a row is a row, whoever it
    belongs to. They start from the nominal cost, so that one disturbed step decides nothing. More rows never cost less.
    A plain step is due after ``stale`` steps of a batch size without one, as contexts grow and machines drift, and soon
    until ``enough`` were timed: one alone may have been disturbed.
    """

    def __init__(self, nominal: NominalCosts | None = None, stale: int = 160, enough: int = 3) -> None:
        self._nominal, self._stale, self._enough = nominal or NominalCosts(), stale, enough
        self._plain: dict[int, deque[float]] = {}  # requests -> seconds
        self._plain_median: dict[int, float] = {}
        self._wide: dict[int, deque[tuple[int, int, float]]] = {}  # size class -> (requests, further rows, seconds)
        self._row_seconds_of: dict[int, float] = {}  # size class -> what its timings come to
        self._steps: dict[tuple[int, int], float] = {}  # (requests, rows) -> plain steps, until timings change it
        self._added = 0
        self._draft: dict[int, dict[int, deque[float]]] = {}  # requests -> k -> seconds
        self._age: dict[int, int] = {}  # requests -> steps since a plain one

    def add(self, requests: int, rows: int, seconds: float) -> None:
        """A forward of ``requests`` requests over ``rows`` rows took so long."""
        if rows == requests:
            times = self._plain.setdefault(requests, deque(maxlen=_SAMPLES))
            times.append(seconds)
            self._plain_median[requests] = median_low(times)
            self._steps.clear()
            self._age[requests] = 0
        else:
            times_of_class = self._wide.setdefault(_size_class(rows), deque(maxlen=_WIDE_SAMPLES))
            times_of_class.append((requests, rows - requests, seconds))
            self._age[requests] = self._age.get(requests, 0) + 1
        self._added += 1
        if self._added % _REFRESH == 0 or self._added < 2 * _WIDE_SAMPLES:
            self._row_seconds_of.clear()
            self._steps.clear()

    def add_draft(self, requests: int, k: int, seconds: float) -> None:
        """A round of up to ``k`` drafts for each request took so long."""
        self._draft.setdefault(requests, {}).setdefault(k, deque(maxlen=_SAMPLES)).append(seconds)

    def plain_is_stale(self, requests: int) -> bool:
        """True when a plain step should be timed again before drafts are judged by it."""
        known = len(self._plain.get(requests, ())) >= self._enough
        return self._age.get(requests, 0) >= (self._stale if known else _UNKNOWN)

    def plain_seconds(self, requests: int) -> float | None:
        """Seconds of a plain step; of a batch size not seen yet, from the nearest one. None when nothing is measured."""
        known = self._plain_median.get(requests)
        if known is not None or not self._plain_median:
            return known
        nearest = min(self._plain_median, key=lambda other: abs(other - requests))
        return self._plain_median[nearest] * self._nominal.step(nearest, requests)

    def step(self, requests: int, rows: int) -> float:
        cost = self._steps.get((requests, rows))
        if cost is None:
            cost = self._steps[requests, rows] = self._step(requests, rows)
        return cost

    def _step(self, requests: int, rows: int) -> float:
        plain = self.plain_seconds(requests)
        if plain is None:
            return self._nominal.step(requests, rows)
        most = (rows - requests) * self._row_seconds(rows)
        size = 1 << _size_class(requests)  # no forward is cheaper than a smaller one, whatever the timings say
        while size < rows:
            most = max(most, (size - requests) * self._row_seconds(size))
            size *= 2
        return 1.0 + most / plain

    def draft(self, requests: int, k: int) -> float:
        plain, known = self.plain_seconds(requests), self._draft.get(requests)
        if plain is None or not known:
            return self._nominal.draft(requests, k)
        nearest = min(known, key=lambda other: abs(other - k))
        seconds = median(known[nearest])
        if k < nearest or k > max(known):
            seconds *= self._nominal.draft(requests, k) / self._nominal.draft(requests, nearest)
        return seconds / plain

    def _row_seconds(self, rows: int) -> float:
        """Seconds that a row beyond one a request costs in a forward of so many rows."""
        size = _size_class(rows)
        found = self._row_seconds_of.get(size)
        if found is None:
            found = self._row_seconds_of[size] = self._measure(size)
        return found

    def _measure(self, size: int) -> float:
        """Least squares over the timings of the nearest size class, outliers pulled in, the nominal cost as a prior."""
        nominal = self._nominal_row()
        near = min(self._wide, key=lambda other: (abs(other - size), other), default=None)
        times = [] if near is None else [t for t in self._wide[near] if t[0] in self._plain_median]
        if not times:
            return nominal
        costs = [(seconds - self._plain_median[n]) / further for n, further, seconds in times]
        middle = median([*costs, nominal, nominal])
        noise = _NOISE * max(self._plain_median[n] for n, _, _ in times)
        spread = _PRIOR_SPREAD * max(nominal, ROW_SHARE * min(self._plain_median.values()) / max(self._plain_median))
        weight = (noise / spread) ** 2
        total = weight * nominal
        for cost, (_, further, _) in zip(costs, times, strict=True):
            reach = 0.5 * abs(middle) + 3.0 * noise / further
            total += further**2 * min(max(cost, middle - reach), middle + reach)
            weight += further**2
        return max(0.0, total / weight)

    def _nominal_row(self) -> float:
        requests = min(self._plain_median)
        return self._plain_median[requests] * (self._nominal.step(requests, requests + 1) - 1.0)


def _pass_share(draft: int | None, target: int | None) -> float:
    if draft is None or (draft and not target):
        return UNKNOWN_SHARE
    return max(draft / target, LOOKUP_SHARE) if target else LOOKUP_SHARE


def _size_class(rows: int) -> int:
    return (rows - 1).bit_length()
