"""The nearest name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.config.findings.suggest import distance, nearest

NAMES = [
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "draft_tensor_parallel_size",
    "model",
    "method",
    "eagle",
    "eagle3",
    "ngram",
    "bfloat16",
    "float16",
]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("num_speculatve_tokens", "num_speculative_tokens"), ("num-speculative-tokens", "num_speculative_tokens"), ("NumSpeculativeTokens", "num_speculative_tokens"),
        ("number_speculative_tokens", "num_speculative_tokens"), ("drafter_tensor_parallel_size", "draft_tensor_parallel_size"),
        ("tensor_parallel_size", "draft_tensor_parallel_size"), ("ngram_prompt_lookup_max", "prompt_lookup_max"), ("prompt_lookup_maximum", "prompt_lookup_max"),
        ("EAGLE-3", "eagle3"), ("eagel", "eagle"), ("egale3", "eagle3"), ("ngarm", "ngram"), ("modle", "model"), ("bf16", "bfloat16"), ("mehtod", "method"),
        ("zzz", None), ("", None), ("___", None), ("x", None),
    ],
)  # fmt: skip
def test_nearest(word: str, name: str | None) -> None:
    assert nearest(word, NAMES) == name


def test_nothing_is_near_nothing() -> None:
    assert nearest("model", []) is None


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_distance_is_a_metric_with_a_limit(a: str, b: str) -> None:
    exact = distance(a, b, 100)
    assert exact is not None and exact == distance(b, a, 100)
    assert (exact == 0) == (a == b)
    assert distance(a, b, exact) == exact
    if exact:
        assert distance(a, b, exact - 1) is None
