"""What steps cost: nominal numbers, and estimates from timings that are noisy, few or disturbed."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from specdec.engine.policy.step_costs import LOOKUP_SHARE, ROW_SHARE, UNKNOWN_SHARE, MeasuredCosts, NominalCosts

PLAIN, ROW = 0.010, 0.002


def configuration(draft: int | None, passes: int = 5, members: tuple = ()) -> SimpleNamespace:
    values = {
        "resources.draft_pass_bytes": draft, "resources.draft_passes": passes, "resources.target_weight_bytes": 1000,
    }  # fmt: skip
    return SimpleNamespace(get=values.get, members=members)


def test_nominal_costs_of_a_configuration() -> None:
    assert NominalCosts.of(configuration(0, passes=1)).draft(1, 5) == pytest.approx(LOOKUP_SHARE)
    assert NominalCosts.of(configuration(None)).draft(1, 5) == pytest.approx(5 * UNKNOWN_SHARE)
    assert NominalCosts.of(configuration(200)).draft(1, 5) == pytest.approx(1.0)
    assert NominalCosts.of(configuration(200, passes=1)).draft(1, 5) == pytest.approx(0.2)
    assert NominalCosts.of(configuration(200, passes=1)).draft(1, 0) == 0.0
    assert NominalCosts.of(configuration(200), "cpu", 4000).draft(1, 5) == pytest.approx(
        0.25
    )  # it runs wider than its file
    chain = configuration(None, members=(configuration(0, passes=1), configuration(200)))
    assert NominalCosts.of(chain).draft(1, 5) == pytest.approx(1.0 + LOOKUP_SHARE)


def test_a_nominal_row_costs_its_share_of_the_batch() -> None:
    costs = NominalCosts()
    assert costs.step(1, 9) == pytest.approx(1 + 8 * ROW_SHARE)
    assert costs.step(8, 8) == 1.0
    assert costs.step(8, 9) == pytest.approx((1 + 8 * ROW_SHARE) / (1 + 7 * ROW_SHARE))


def test_nothing_measured_is_nominal() -> None:
    costs = MeasuredCosts()
    assert costs.plain_seconds(1) is None
    assert costs.step(4, 7) == NominalCosts().step(4, 7)
    costs.add(1, 1, PLAIN)
    assert costs.step(1, 7) == pytest.approx(1 + 6 * ROW_SHARE)
    assert costs.plain_seconds(3) == pytest.approx(PLAIN * (1 + 2 * ROW_SHARE))


def test_timings_take_over_from_nominal_costs() -> None:
    costs = MeasuredCosts()
    for rows in (1, 2, 1, 5, 1, 9, 1, 9, 1, 13):
        costs.add(1, rows, PLAIN + ROW * (rows - 1))
    for rows in range(1, 14):
        assert costs.step(1, rows) == pytest.approx(1 + ROW / PLAIN * (rows - 1), rel=0.05)
    for _ in range(3):
        costs.add(8, 8, PLAIN + 7 * ROW)  # what a row costs is known already
    assert costs.step(8, 12) == pytest.approx((PLAIN + 11 * ROW) / (PLAIN + 7 * ROW), rel=0.05)


def test_a_machine_where_rows_are_free() -> None:
    costs = MeasuredCosts()
    for i in range(60):
        costs.add(1, 1 + i % 13, PLAIN)
    assert all(costs.step(1, rows) < 1.02 for rows in range(1, 14))


@pytest.mark.parametrize("requests", [1, 8, 32])
@pytest.mark.parametrize("seed", range(5))
def test_noise_and_disturbed_steps_are_averaged_out(requests: int, seed: int) -> None:
    rng, costs = random.Random(seed), MeasuredCosts()
    for i in range(200):
        rows = requests + (0 if i % 3 == 0 else rng.randrange(1, 13))
        seconds = (PLAIN + ROW * (rows - 1)) * rng.gauss(1, 0.04)
        costs.add(requests, rows, seconds * (rng.uniform(2, 20) if rng.random() < 0.03 else 1))
    plain = PLAIN + ROW * (requests - 1)
    for further in (1, 4, 12):
        assert costs.step(requests, requests + further) - 1 == pytest.approx(further * ROW / plain, rel=0.5)


def test_one_disturbed_first_timing_decides_nothing() -> None:
    costs = MeasuredCosts()
    for _ in range(3):
        costs.add(1, 1, PLAIN)
    costs.add(1, 9, 30 * PLAIN)
    assert costs.step(1, 9) < 1.5 * (1 + 8 * ROW_SHARE)


def test_plain_steps_are_asked_for_when_none_was_timed_for_long() -> None:
    costs = MeasuredCosts()
    assert not costs.plain_is_stale(1)
    for _ in range(10):
        costs.add(1, 5, PLAIN)
    assert costs.plain_is_stale(1) and not costs.plain_is_stale(2)
    for _ in range(3):
        costs.add(1, 1, PLAIN)
    assert not costs.plain_is_stale(1)
    for _ in range(159):
        costs.add(1, 5, PLAIN)
    assert not costs.plain_is_stale(1)
    costs.add(1, 5, PLAIN)
    assert costs.plain_is_stale(1)


def test_drafting_is_timed_by_the_number_of_drafts() -> None:
    costs = MeasuredCosts(NominalCosts(draft_per_token=0.2))
    costs.add(1, 1, PLAIN)
    assert costs.draft(1, 4) == pytest.approx(0.8)
    for _ in range(3):
        costs.add_draft(1, 4, 0.4 * PLAIN)
    assert costs.draft(1, 4) == pytest.approx(0.4)
    assert costs.draft(1, 2) == pytest.approx(0.2)
    assert costs.draft(1, 8) == pytest.approx(0.8)


def test_more_rows_never_cost_less() -> None:
    costs = MeasuredCosts()
    for seconds in (0.0100, 0.0101, 0.0099):
        costs.add(1, 1, seconds)
    for _ in range(12):
        costs.add(1, 4, 0.016)
        costs.add(1, 7, 0.011)  # one size was disturbed, or another runs a better kernel
    curve = [costs.step(1, rows) for rows in range(1, 9)]
    assert curve == sorted(curve)
    assert curve[3] > 1.4


def test_on_a_gpu_rows_are_nearly_free_until_they_are_timed() -> None:
    nominal = NominalCosts.of(configuration(0), "cuda")
    assert nominal.step(1, 9) < 1.05 < NominalCosts.of(configuration(0)).step(1, 9)
    costs = MeasuredCosts(nominal)
    for rows in (1, 8, 1, 8, 1, 8, 8, 8, 8, 8):
        costs.add(1, rows, PLAIN + ROW * (rows - 1))
    assert costs.step(1, 8) == pytest.approx(1 + 7 * ROW / PLAIN, rel=0.1)
