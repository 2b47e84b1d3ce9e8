from __future__ import annotations

import subprocess
import sys

import pytest

from specdec.verify.advice import advise_k, unconditional


def test_reported_case_prefers_a_smaller_k():
    advice = advise_k([0.844, 0.599, 0.385, 0.271], draft_cost_ratio=0.15)
    assert advice.best_k == 3
    assert [round(c.tokens_per_round, 3) for c in advice.choices] == [1.0, 1.844, 2.443, 2.828, 3.099]
    # where verifying wider rows also costs, k = 2 wins, as the reporter measured
    assert advise_k([0.766, 0.545, 0.385, 0.271], draft_cost_ratio=0.15, verify_cost_ratio=0.1).best_k == 2
    assert "k=3: 2.83 tokens a round" in advice.explain() and advice.explain().count("(best)") == 1


def test_speculation_that_does_not_pay_is_zero():
    assert advise_k([0.1, 0.01], draft_cost_ratio=0.3).best_k == 0
    assert advise_k([], draft_cost_ratio=0.3).best_k == 0
    assert advise_k([1.0, 1.0], draft_cost_ratio=1.0).best_k == 0  # ties go to the smaller k
    assert advise_k([0.5], draft_cost_ratio=0.1, fixed_cost_ratio=0.5).best_k == 0


def test_conditional_rates_multiply():
    assert unconditional([0.5, 0.5, 0.0, 1.0]) == [0.5, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rates", "costs", "message"),
    [
        ([84.4], {"draft_cost_ratio": 0.1}, "outside"),
        ([0.5, 0.6], {"draft_cost_ratio": 0.1}, "give unconditional rates"),
        ([0.5], {"draft_cost_ratio": -1}, "negative"),
    ],
)
def test_bad_input(rates, costs, message):
    with pytest.raises(ValueError, match=message):
        advise_k(rates, **costs)


def test_advice_and_estimator_need_no_torch():
    code = (
        "import sys; from specdec.verify import advise_k, AcceptanceEstimator; from specdec.verify.exact import round_law; "
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
