"""Learning what confidences are worth from a few rounds."""

from __future__ import annotations

import random

import pytest

from specdec.engine.policy.calibration import Calibration


def test_nothing_observed_changes_nothing_but_certainty() -> None:
    assert Calibration().predict([0.5, 0.9]) == pytest.approx([0.5, 0.9])
    assert Calibration().predict([0.0, 1.0]) == pytest.approx([0.03, 0.97])


@pytest.mark.parametrize(("claimed", "true"), [(0.9, 0.3), (0.3, 0.9), (0.6, 0.6)])
def test_it_converges_to_what_is_accepted(claimed: float, true: float) -> None:
    rng, calibration = random.Random(1), Calibration()
    for _ in range(300):
        accepted = 0
        while accepted < 6 and rng.random() < true:
            accepted += 1
        calibration.observe([claimed] * 6, accepted)
    assert calibration.predict([claimed])[0] == pytest.approx(true, abs=0.12)


def test_a_few_failures_are_enough_to_doubt() -> None:
    calibration = Calibration()
    for _ in range(3):
        calibration.observe([0.7, 0.7], 0)
    doubted = calibration.predict([0.7, 0.97])
    assert doubted[0] < 0.45 and doubted[1] > doubted[0]  # sure drafts may still be tried


def test_it_never_leaves_the_range_of_a_probability() -> None:
    calibration = Calibration()
    for accepted in [0] * 500 + [12] * 500:
        calibration.observe([0.97] * 12, accepted)
        assert all(0.0 < p < 1.0 for p in calibration.predict([0.0, 0.5, 1.0]))
