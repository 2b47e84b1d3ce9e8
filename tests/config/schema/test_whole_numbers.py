"""``5.0`` where an integer is meant is ``5`` before anything looks at it; ``1.5`` is an error."""

from __future__ import annotations

import pytest

import specdec

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


def codes(document, overrides=()):
    return [d.code for d in specdec.resolve(document, list(overrides)).errors]


@pytest.mark.parametrize(
    "speculative, overrides, code",
    [
        (NGRAM, ["speculative.prompt_lookup_min=5.0", "speculative.prompt_lookup_max=2"], "min-greater-than-max"),
        ({**NGRAM, "prompt_lookup_min": 5.0, "prompt_lookup_max": 2.0}, [], "min-greater-than-max"),
        (
            {**NGRAM, "num_speculative_tokens": 3.0, "num_speculative_tokens_per_batch_size": [[1, 4, 5]]},
            [],
            "schedule-k",
        ),
        ({**NGRAM, "num_speculative_tokens_per_batch_size": [[1.0, 4.0, 5.0]]}, [], "schedule-k"),
        (
            [{**NGRAM, "prompt_lookup_min": 5.0, "prompt_lookup_max": 2}, {"method": "suffix"}],
            [],
            "min-greater-than-max",
        ),
    ],
)
def test_rules_see_whole_numbers(speculative, overrides, code):
    assert codes({"speculative": speculative}, overrides) == [code]


@pytest.mark.parametrize("value", [1.5, 0.1, 1e300])
@pytest.mark.parametrize(
    "path", ["speculative.num_speculative_tokens", "target.tensor_parallel_size", "engine.max_num_seqs"]
)
def test_fractions_and_giants_are_errors(path, value):
    section, name = path.split(".")
    document = {"speculative": NGRAM, "target": {}, "engine": {}}
    document[section] = {**document[section], name: value}
    assert codes(document) and all(code in ("wrong-type", "out-of-range") for code in codes(document))


def test_both_spellings_are_one_configuration():
    plain, decimal = (
        specdec.resolve({"speculative": {**NGRAM, "num_speculative_tokens": k}, "target": {"tensor_parallel_size": t}})
        for k, t in ((1, 3), (1.0, 3.0))
    )
    assert plain.config is not None and plain.config.config_hash == decimal.config.config_hash
    assert type(decimal.config.num_speculative_tokens) is int and decimal.config.target.tensor_parallel_size == 3


def test_numbers_that_may_be_fractions_stay(tmp_path):
    config = specdec.resolve({"speculative": {"method": "suffix", "suffix_decoding_max_spec_factor": 2.0}}).unwrap()
    assert type(config.options.suffix_decoding_max_spec_factor) is float
    assert codes({"speculative": {**NGRAM}, "target": {"tokenizer": "5.0"}}) == []
