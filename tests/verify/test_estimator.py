from __future__ import annotations

import math
import random

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
