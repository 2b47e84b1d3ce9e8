from __future__ import annotations

import math
import random

import numpy as np
import pytest

from specdec.verify.estimator import AcceptanceEstimator, ConfidenceEstimator


def test_rates_converge_and_rejections_censor_what_follows():
    rng, rates = random.Random(0), [0.9, 0.5, 0.2]
    estimator = AcceptanceEstimator(3, half_life=1000)
    for _ in range(3000):
        accepted = next((i for i, r in enumerate(rates) if rng.random() > r), 3)
        estimator.observe(accepted, 3)
    assert estimator.conditional() == pytest.approx(rates, abs=0.06)
    assert estimator.expected_tokens() == pytest.approx(1 + 0.9 + 0.45 + 0.09, abs=0.1)
    assert estimator.expected_tokens(1) == pytest.approx(1.9, abs=0.05)


def test_it_forgets():
    estimator = AcceptanceEstimator(1, half_life=8)
    for _ in range(200):
        estimator.observe(1, 1)
    assert estimator.conditional()[0] > 0.9
    for _ in range(60):
        estimator.observe(0, 1)
    assert estimator.conditional()[0] < 0.15


def test_trimmed_and_empty_rounds():
    estimator = AcceptanceEstimator(3)
    estimator.observe(0, 0)
    assert estimator.trials == [0, 0, 0]
    estimator.observe(1, 1)  # only one draft verified: position 2 was not tried
    assert estimator.trials[0] == 1 and estimator.trials[1] == 0
    with pytest.raises(ValueError, match="observed 2 accepted of 1"):
        estimator.observe(2, 1)
    with pytest.raises(ValueError, match="half_life"):
        AcceptanceEstimator(2, half_life=0)


def test_confidences_recover_a_planted_model():
    rng = random.Random(1)
    estimator = ConfidenceEstimator(2, refit_every=1000)
    slope, intercepts = 0.9, [0.4, -0.6]
    for _ in range(6000):
        features = [rng.uniform(-3, 4), rng.uniform(-3, 4)]
        truth = [1 / (1 + math.exp(-(slope * f + b))) for f, b in zip(features, intercepts, strict=True)]
        accepted = next((i for i, p in enumerate(truth) if rng.random() > p), 2)
        estimator.observe(features, estimator.predict(features), accepted, 2)
    assert estimator.slope == pytest.approx(slope, abs=0.15)
    assert estimator.intercepts == pytest.approx(intercepts, abs=0.25)


def test_confidence_survives_extreme_features():
    estimator = ConfidenceEstimator(1, refit_every=5)
    for _ in range(50):
        estimator.observe([40.0], estimator.predict([40.0]), 0, 1)
    assert 0 <= estimator.predict([40.0])[0] <= 1 and estimator.slope >= 0


def observed(estimator, rounds, seed):
    """Feeds random rounds; returns each (feature, prediction, step, accepted) that should count."""
    rng, trials = random.Random(seed), []
    for _ in range(rounds):
        features = [rng.uniform(-3, 4) for _ in range(estimator.k)]
        predicted, verified = estimator.predict(features), rng.randint(0, estimator.k)
        chances = [1 / (1 + math.exp(-0.8 * feature)) for feature in features]
        accepted = next((i for i in range(verified) if rng.random() > chances[i]), verified)
        estimator.observe(features, predicted, accepted, verified)
        trials += [(features[i], predicted[i], i, float(i < accepted)) for i in range(min(accepted + 1, verified))]
    return trials


@pytest.mark.parametrize("seed", range(4))
def test_the_closed_form_equals_a_dense_solve(seed):
    k, ridge = 5, 1e-3
    estimator = ConfidenceEstimator(k, refit_every=300, damping=0.0, ridge=ridge)
    before = np.array([estimator.slope, *estimator.intercepts])
    matrix, right = ridge * np.eye(1 + k), np.zeros(1 + k)
    for feature, p, step, label in observed(estimator, 300, seed):
        row = np.zeros(1 + k)
        row[0], row[1 + step] = feature, 1.0
        matrix += p * (1 - p) * np.outer(row, row)
        right += (label - p) * row
    move = np.linalg.solve(matrix, right)
    assert before[0] + move[0] > 0  # else the slope would be kept
    after = np.array([estimator.slope, *estimator.intercepts])
    assert np.abs(after - before - move).max() < 1e-12


def test_damping_holds_back_what_was_seldom_observed():
    moves = []
    for damping in (0.0, 50.0):
        estimator = ConfidenceEstimator(1, refit_every=50, damping=damping)
        trials = observed(estimator, 50, 3)
        moves.append(estimator.slope - 0.5)
    assert moves[1] == pytest.approx(moves[0] * len(trials) / (len(trials) + 50))


def test_what_lies_behind_a_rejection_or_was_not_verified_is_not_observed():
    def refitted(rounds):
        estimator = ConfidenceEstimator(3, refit_every=len(rounds))
        for features, accepted, verified in rounds:
            estimator.observe(features, estimator.predict(features), accepted, verified)
        return estimator.slope, estimator.intercepts

    # the third step is behind a rejection, then trimmed away: its feature may be anything
    known = [([1.0, 2.0, 0.0], 1, 3), ([0.5, -1.0, 0.0], 2, 2)]
    other = [([1.0, 2.0, 9.0], 1, 3), ([0.5, -1.0, -9.0], 2, 2)]
    assert refitted(known) == refitted(other)
    assert refitted(known)[1][2] == -0.2
    assert refitted(known) != refitted([([1.0, 2.0, 0.0], 3, 3), known[1]])
