"""Sampling parameters: normalisation, and errors that name field, value and what is allowed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import fields

import pytest

from specdec.engine.sampling.sampling_params import SamplingParams, SamplingParamsError


@pytest.mark.parametrize(
    ("values", "field", "says"),
    [
        ({"temperature": -0.1}, "temperature", "at least 0"),
        ({"temperature": float("nan")}, "temperature", "finite"),
        ({"temperature": "hot"}, "temperature", "finite number"),
        ({"top_p": 0}, "top_p", "(0, 1]"),
        ({"top_p": 1.1}, "top_p", "(0, 1]"),
        ({"min_p": 1.5}, "min_p", "[0, 1]"),
        ({"top_k": -2}, "top_k", "0 for all"),
        ({"top_k": 2.5}, "top_k", "integer"),
        ({"n": True}, "n", "integer"),
        ({"presence_penalty": 3}, "presence_penalty", "[-2, 2]"),
        ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
        ({"repetition_penalty": 1e300}, "repetition_penalty", "1e+09"),
        ({"temperature": 1e300}, "temperature", "1e+09"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens", "max_tokens (4)"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "at least one"),
        ({"allowed_token_ids": "12"}, "allowed_token_ids", "a list"),
        ({"stop": [""]}, "stop", "non-empty"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "integers"),
        ({"logit_bias": {1: 101}}, "logit_bias[1]", "-100 to 100"),
        ({"bad_words_token_ids": [[]]}, "bad_words_token_ids", "non-empty"),
        ({"seed": 2**70}, "seed", "64-bit"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens", "at least 0"),
        ({"temperature": 0, "n": 2}, "n", "greedy"),
        ({"ignore_eos": "yes"}, "ignore_eos", "true or false"),
        ({"stop": ["x"], "detokenize": False}, "stop", "detokenize"),
    ],
)
def test_errors_name_field_value_and_allowed(values: dict, field: str, says: str) -> None:
    with pytest.raises(SamplingParamsError) as caught:
        SamplingParams(**values)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} is ")
    assert says in str(caught.value)


HUGE = (10**400, -(10**400), 10**5000, 2**63, 1e400, float("nan"), float("inf"), range(2**70), "9" * 5000)


@pytest.mark.parametrize("field", [f.name for f in fields(SamplingParams)])
def test_absurd_values_are_an_error_that_stays_short(field: str) -> None:
    """Numbers no field can mean, alone, in a list, in lists, as a key and as a value of a map."""
    for value in HUGE:
        for given in (value, [value], [[value]], {value: 1.0}, {"3": value}):
            try:
                SamplingParams(**{field: given})
            except SamplingParamsError as error:
                assert len(str(error)) < 400
            else:  # what is left: words a user may forbid, and ids that only a target can judge
                assert (field, given) in (("stop", [value]), ("bad_words", [value])) or (
                    field in ("allowed_token_ids", "stop_token_ids", "bad_words_token_ids") and value > 0
                )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"allowed_token_ids": range(2**40)}, "at most 1048576 entries"),
        ({"allowed_token_ids": itertools.count()}, "a list"),
        ({"stop": ["x"] * 2000}, "at most 1024 entries"),
        ({"stop": "x" * 10**6}, "at most 4096 characters"),
        ({"bad_words": (f"w{i}" for i in range(3))}, "a list"),
        ({"bad_words_token_ids": [range(10**9)]}, "at most 4096 entries"),
        ({"logit_bias": {True: 1.0}}, "as keys"),
        ({"logit_bias": {1.7: 1.0}}, "as keys"),
        ({"logit_bias": {"1_0": 1.0}}, "as keys"),
        ({"logit_bias": {-1: 1.0}}, "as keys"),
        ({"logit_bias": {"3": 1.0, 3: 2.0}}, "once"),
        ({"n": 10**6}, "at most 1024"),
        ({"top_k": -1.0}, "integer"),
        ({"unknown" * 100: 1}, "no such parameter"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_sizes_are_bounded(values: dict, says: str) -> None:
    with pytest.raises(SamplingParamsError) as caught:
        SamplingParams.from_mapping(values)
    assert says in str(caught.value) and len(str(caught.value)) < 400


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(SamplingParamsError, match="did you mean temperature"):
        SamplingParams.from_mapping({"temprature": 1.0})


def test_values_are_normalised() -> None:
    params = SamplingParams(stop="END", top_k=-1, logit_bias={"3": 1}, bad_words_token_ids=[[1, 2]])
    assert params.stop == ("END",)
    assert params.top_k == 0
    assert params.logit_bias == {3: 1.0}
    assert params.bad_words_token_ids == ((1, 2),)
    assert params.to_dict() == {"stop": ("END",), "logit_bias": {3: 1.0}, "bad_words_token_ids": ((1, 2),)}


def test_only_temperature() -> None:
    assert SamplingParams(temperature=0.7, max_tokens=3, stop=["a"]).only_temperature
    for extra in ({"top_k": 2}, {"min_p": 0.1}, {"logit_bias": {1: 1}}, {"min_tokens": 1}, {"frequency_penalty": 1}):
        assert not SamplingParams(**extra).only_temperature


def test_token_ids_must_lie_in_the_vocabulary() -> None:
    with pytest.raises(SamplingParamsError, match=r"logit_bias is 8; allowed: token ids from 0 to 7"):
        SamplingParams(logit_bias={8: 1.0}).check_vocabulary(8)
    with pytest.raises(SamplingParamsError, match="bad_words"):
        SamplingParams(allowed_token_ids=[1], bad_words_token_ids=[[1]]).check_vocabulary(8)
    SamplingParams(logit_bias={7: 1.0}).check_vocabulary(8)


def test_the_module_is_torch_free() -> None:
    code = "import sys, specdec.engine.sampling.sampling_params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
