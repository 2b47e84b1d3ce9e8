"""Intervals of medians: their coverage is what they claim, and verdicts follow from them."""

from __future__ import annotations

import random
from itertools import product

import pytest

from specdec.bench.paired import FASTER, FEWEST, NO, OPEN, SLOWER, UNDECIDED, YES, compare, interval, interval_rank
from specdec.bench.samples import Sample


def samples(mode: str, speeds: list[float], disturbed: tuple[int, ...] = ()) -> list[Sample]:
    return [
        Sample([0] * 60, 60 / v, 60, mode=mode, prompt="p", kind="k", repeat=i, disturbed=i in disturbed)
        for i, v in enumerate(speeds)
    ]


@pytest.mark.parametrize("n", range(1, 13))
def test_the_rank_is_the_largest_that_covers_by_counting_all_signs(n):
    """Noise that may hit either run: every pattern of signs of the values -n..n (by rank) is equally likely."""
    magnitudes = [3.0**i for i in range(1, n + 1)]  # no two means of two agree

    def coverage(rank: int) -> float:
        inside = 0
        for signs in product((-1, 1), repeat=n):
            values = [s * m for s, m in zip(signs, magnitudes, strict=True)]
            above = sum(x + y > 0 for i, x in enumerate(values) for y in values[i:])
            inside += rank <= above <= n * (n + 1) // 2 - rank
        return inside / 2**n

    rank = interval_rank(n)
    assert rank == 0 or coverage(rank) >= 0.95
    assert coverage(rank + 1) < 0.95


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (7, 3), (8, 4), (10, 9), (15, 26), (20, 53), (25, 90)])
def test_ranks_of_the_published_tables(n, rank):
    assert interval_rank(n) == rank


def test_the_interval_holds_the_median():
    values = [0.0] * 4 + [5.0] * 5
    low, high = interval(values)
    assert low <= 5.0 <= high and interval(values[:5]) is None
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def test_six_repeats_are_the_fewest():
    assert FEWEST == 6


def test_a_plain_mode_against_itself_is_seldom_called_slower_or_faster():
    """Noise of 10 % with stalls, no true difference: at most 5 % of the verdicts may be wrong."""
    rng = random.Random(1)

    def speed() -> float:
        return 50 * rng.lognormvariate(0, 0.1) * (0.3 if rng.random() < 0.1 else 1.0)

    found = []
    for _ in range(1000):
        one = compare(samples("a", [speed() for _ in range(15)]), samples("plain", [speed() for _ in range(15)]))
        found.append(one.verdict)
    assert 10 <= sum(v != UNDECIDED for v in found) <= 65  # 50 expected


def test_pairs_are_by_repeat_so_that_a_slow_spell_of_the_machine_cancels():
    spells = [100.0, 50.0, 20.0, 80.0, 90.0, 30.0, 60.0]
    one = compare(samples("a", [0.9 * s for s in spells]), samples("plain", spells)[::-1])
    assert one.ratio == pytest.approx(0.9) and one.low == pytest.approx(0.9) and one.pairs == 7
    assert one.verdict == SLOWER and one.within_aim == NO


@pytest.mark.parametrize(
    ("ratios", "verdict", "aim"),
    [
        ([0.98] * 9, SLOWER, YES),  # slower, but by less than 3 %
        ([0.9] * 9, SLOWER, NO),
        ([1.2] * 9, FASTER, YES),
        ([0.9, 1.1] * 6, UNDECIDED, OPEN),
        ([0.98, 1.02] * 6, UNDECIDED, YES),
        ([0.9] * 5, UNDECIDED, OPEN),  # too few
    ],
)
def test_verdicts(ratios, verdict, aim):
    one = compare(samples("a", [50 * r for r in ratios]), samples("plain", [50.0] * len(ratios)))
    assert (one.verdict, one.within_aim) == (verdict, aim)


def test_disturbed_pairs_are_left_out_while_enough_remain():
    mine = [55.0] * 6 + [5.0, 5.0]
    one = compare(samples("a", mine, disturbed=(6, 7)), samples("plain", [50.0] * 8))
    assert one.pairs == 6 and one.verdict == FASTER and one.speed == pytest.approx(55)
    few = compare(samples("a", mine, disturbed=(4, 5, 6, 7)), samples("plain", [50.0] * 8))
    assert few.pairs == 8


def test_nothing_to_pair():
    assert compare(samples("a", [1.0]), []) is None
