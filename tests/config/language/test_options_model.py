"""Option models: strict, frozen, and of one mind with the JSON Schema."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from specdec.config.findings.diagnostics import Source
from specdec.config.language.options_model import option_model, option_problem, validate_options
from specdec.config.language.record import OptionSpec
from specdec.config.records.registry import builtin
from specdec.config.schema.build import option_schema

RECORDS = builtin().records
OPTIONS = sorted(
    {repr(option): (name, option) for name, record in RECORDS.items() for option in record.options.values()}.values(),
    key=lambda pair: (pair[1].name, pair[0]),
)  # every distinct option
OPTIONS = [pair for pair in OPTIONS if pair[1].name != "speculators"]  # whole blocks, checked one by one


@pytest.mark.parametrize(
    ("method", "options", "code", "path", "says"),
    [
        ("ngram", {"prompt_lookup_maxx": 4}, "unknown-key", "speculative.prompt_lookup_maxx", "prompt_lookup_max"),
        ("suffix", {"model": "./d"}, "unknown-key", "speculative.model", "suffix"),
        ("ngram", {"prompt_lookup_max": True}, "wrong-type", "speculative.prompt_lookup_max", "an integer"),
        ("ngram", {"prompt_lookup_max": "4"}, "wrong-type", "speculative.prompt_lookup_max", "an integer"),
        ("ngram", {"prompt_lookup_max": 4.5}, "wrong-type", "speculative.prompt_lookup_max", "an integer"),
        ("ngram", {"prompt_lookup_max": 0}, "out-of-range", "speculative.prompt_lookup_max", "at least 1"),
        ("ngram", {"num_speculative_tokens": 129}, "out-of-range", "speculative.num_speculative_tokens", "at most 128"),
        ("suffix", {"suffix_decoding_min_token_prob": 1.5}, "out-of-range", "speculative.suffix_decoding_min_token_prob", "at most 1"),
        ("ngram", {"fly_entropy_threshold": math.nan}, "out-of-range", "speculative.fly_entropy_threshold", "finite"),
        ("ngram", {"rejection_sample_method": "strict"}, "unknown-value", "speculative.rejection_sample_method", "standard, block"),
        ("xpress", {"draft_sample_method": "probabilistic"}, "unknown-value", "speculative.draft_sample_method", "greedy"),
        ("pard", {"parallel_drafting": False}, "unknown-value", "speculative.parallel_drafting", "true"),
        ("eagle3", {"tree": {"steps": 2, "topkk": 2}}, "unknown-key", "speculative.tree.topkk", "topk"),
        ("eagle3", {"tree": {"steps": 0}}, "out-of-range", "speculative.tree.steps", "at least 1"),
        ("eagle3", {"aux_layers": [1, -1]}, "out-of-range", "speculative.aux_layers[1]", "at least 0"),
        ("eagle3", {"aux_layers": 3}, "wrong-type", "speculative.aux_layers", "a list or a text"),
        ("ngram", {"synthetic_acceptance_rates": [0.5, 2]}, "out-of-range", "speculative.synthetic_acceptance_rates[1]", "at most 1"),
        ("ngram", {"num_speculative_tokens_per_batch_size": [[1, 2]]}, "wrong-length", "speculative.num_speculative_tokens_per_batch_size[0]", "at least 3"),
        ("chain", {}, "missing-required", "speculative.speculators", "chain"),
    ],
)  # fmt: skip
def test_a_bad_option_is_a_finding(method: str, options: dict[str, Any], code: str, path: str, says: str) -> None:
    values, findings = validate_options(RECORDS[method], options)
    assert values is None
    assert [(d.code, d.path) for d in findings] == [(code, path)]
    assert says in f"{findings[0].message} {findings[0].fix}"


def test_all_findings_come_together_and_say_where() -> None:
    where = Source("file", "run.yaml", 3, 5)
    values, findings = validate_options(
        RECORDS["ngram"], {"prompt_lookup_max": 0, "prompt_lookup_min": "x"}, {"prompt_lookup_max": where}
    )
    assert values is None
    assert {d.path: d.source for d in findings} == {
        "speculative.prompt_lookup_max": where,
        "speculative.prompt_lookup_min": None,
    }


def test_null_equals_absent_and_whole_floats_are_integers() -> None:
    values, _ = validate_options(
        RECORDS["suffix"], {"suffix_decoding_max_tree_depth": None, "num_speculative_tokens": 8.0}
    )
    assert values is not None
    assert values["suffix_decoding_max_tree_depth"] == 24
    assert values["num_speculative_tokens"] == 8 and type(values["num_speculative_tokens"]) is int


def test_models_are_frozen_and_built_once() -> None:
    model = option_model(RECORDS["ngram"])
    assert option_model(RECORDS["ngram"]) is model
    instance = model()
    with pytest.raises(ValueError, match="frozen"):
        instance.prompt_lookup_max = 3


def test_defaults_do_not_share_their_lists() -> None:
    option = OptionSpec("x", ("array",), "A list.", default=[1], items={"type": "integer"})
    assert option_problem(option, [1, 2]) is None
    assert option_problem(option, ["a"]) == "must be a list"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats(-2, 200, allow_nan=False) | st.sampled_from(
        ["", "default", "auto", "greedy", "probabilistic", "standard", "fly", "fp8", "nvfp4", "rightmost", "7", "true", "./draft", "float16"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["steps", "topk", "verify_tokens", "method", "other"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


VALIDATORS = [(f"{name}.{option.name}", option, Draft7Validator(option_schema(option))) for name, option in OPTIONS]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(VALUES)
def test_schema_and_model_agree_on_every_option(value: Any) -> None:
    for name, option, validator in VALIDATORS:
        assert validator.is_valid(value) == (value is None or option_problem(option, value) is None), name
