"""Is a mode slower or faster than plain decoding on a prompt? From repeats that ran the two back to back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import median

from specdec.bench.samples import Sample

CONFIDENCE = 0.95
EARLY = 0.998  # to stop before all repeats: many looks may not add up to a twentieth of wrong verdicts
LOSS = 0.97  # below this share of plain decoding's speed a prompt counts as lost
SLOWER, FASTER, UNDECIDED = "slower", "faster", "not distinguishable"
YES, NO, OPEN = "yes", "no", "open"


@cache
def interval_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """Largest r such that the r-th smallest and r-th largest mean of two of n values enclose their centre.

    0 when no two of them do. Exact signed-rank law: whichever run of a pair was slowed by noise, it might as well have
    been the other (who is first alternates), so each rank has either sign with probability 1/2.
    """
    ways = [1]  # subsets of the ranks 1..n by their sum
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    below = 0
    for r, number in enumerate(ways):
        below += number
        if 2 * below > (1 - confidence) * 2**n:
            return r
    return 0


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Hodges-Lehmann interval of the centre of ``values``, widened to their median; None with too few of them."""
    rank = interval_rank(len(values), confidence)
    if not rank:
        return None
    means = sorted((x + y) / 2 for i, x in enumerate(values) for y in values[i:])
    middle = median(values)
    return min(means[rank - 1], middle), max(means[-rank], middle)


FEWEST = next(n for n in range(1, 100) if interval_rank(n))  # repeats below which there is no interval


@dataclass(frozen=True)
class Paired:
    """Ratios of speed over plain decoding on one prompt, one per repeat: their median and its interval."""

    mode: str
    prompt: str
    kind: str
    temperature: float
    pairs: int
    plain: float  # median tokens/s of plain decoding
    speed: float  # median tokens/s of the mode
    ratio: float
    low: float | None  # None with too few pairs
    high: float | None

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return UNDECIDED
        return SLOWER if self.high < 1 else FASTER if self.low > 1 else UNDECIDED

    @property
    def within_aim(self) -> str:
        """Whether it is shown not to be more than 3 % slower than plain decoding."""
        if self.low is None or self.high is None:
            return OPEN
        return NO if self.high < LOSS else YES if self.low >= LOSS else OPEN


def compare(mine: Sequence[Sample], plain: Sequence[Sample], confidence: float = CONFIDENCE) -> Paired | None:
    """One mode's samples of a prompt against plain decoding's, paired by repeat; None when no repeat has both.

    Pairs with a disturbed sample are left out as long as enough others remain: whether others used the CPU does not
    depend on who is faster.
    """
    base = {s.repeat: s for s in plain}
    pairs = [(s, base[s.repeat]) for s in mine if s.repeat in base]
    quiet = [(a, b) for a, b in pairs if not (a.disturbed or b.disturbed)]
    if len(quiet) >= FEWEST:
        pairs = quiet
    ratios = [a.tokens_per_second / b.tokens_per_second for a, b in pairs if b.tokens_per_second > 0]
    if not ratios:
        return None
    found = interval([log(ratio) for ratio in ratios], confidence)
    return Paired(
        mode=mine[0].mode,
        prompt=mine[0].prompt,
        kind=mine[0].kind,
        temperature=mine[0].temperature,
        pairs=len(ratios),
        plain=median(b.tokens_per_second for _, b in pairs),
        speed=median(a.tokens_per_second for a, _ in pairs),
        ratio=median(ratios),
        low=exp(found[0]) if found else None,
        high=exp(found[1]) if found else None,
    )


def settled(samples: Sequence[Sample], plain: str, modes: Collection[str]) -> bool:
    """Whether a prompt's repeats so far show for every mode that it is within the aim, or that it is not."""
    base = [s for s in samples if s.mode == plain]
    found = [compare([s for s in samples if s.mode == mode], base, EARLY) for mode in modes if mode != plain]
    return all(one is not None and one.within_aim != OPEN for one in found)
