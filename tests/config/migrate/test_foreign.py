"""Settings of other engines become configurations; what cannot be carried over is said."""

from __future__ import annotations

import pytest

from specdec.config.migrate.foreign import engines, from_flags, from_settings


def codes(result) -> list[str]:
    return [d.code for d in result.diagnostics]


def test_sglang_chain_becomes_k():
    flags = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    result = from_flags("sglang", flags.split())
    assert result.config == {"schema_version": 1, "speculative": {"method": "eagle3", "num_speculative_tokens": 3}}
    assert codes(result) == []


def test_sglang_chain_with_a_wrong_verify_block_is_refused():
    result = from_settings("sglang", {"num-steps": 3, "eagle-topk": 1, "num-draft-tokens": 6})
    (error,) = result.diagnostics
    assert (error.code, error.severity) == ("chain-needs-steps-plus-1", "error")
    assert "6" in error.message and "4" in error.message


def test_sglang_tree_keeps_its_shape():
    flags = "--speculative-algorithm EAGLE --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens=8"
    result = from_flags("sglang", flags.split())
    assert result.config["speculative"]["tree"] == {"steps": 5, "topk": 4, "verify_tokens": 8}


def test_only_the_verify_block_gives_k():
    assert from_settings("sglang", {"num-draft-tokens": 4}).config["speculative"]["num_speculative_tokens"] == 3


def test_trtllm_mtp_layers_meant_two_things():
    result = from_settings("trtllm", {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 3}})
    assert result.config["speculative"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert codes(result) == ["renamed-field"]


@pytest.mark.parametrize(
    ("name", "method"), [("Eagle", "eagle"), ("Eagle3", "eagle3"), ("Draft_Target", "draft_model")]
)
def test_trtllm_spellings(name, method):
    assert from_settings("trtllm", {"decoding_type": name}).config["speculative"]["method"] == method


def test_llamacpp_block_counts_the_verified_token():
    result = from_flags("llamacpp", ["--spec-type", "nextn", "--draft-block-size", "4"])
    assert result.config["speculative"] == {"method": "nextn", "num_speculative_tokens": 3}
    assert codes(result) == ["renamed-option"]


def test_llamacpp_flag_given_twice_is_an_error():
    result = from_flags("llamacpp", ["--spec-type", "mtp", "--spec-type", "ngram-mod"])
    assert codes(result) == ["duplicate-override"]
    assert "list" in (result.diagnostics[0].fix or "")


def test_llamacpp_comma_list_becomes_a_chain():
    result = from_flags("llamacpp", ["--spec-type", "draft-mtp,ngram-mod"])
    assert [entry["method"] for entry in result.config["speculative"]] == ["mtp", "ngram"]


def test_vllm_json_with_stale_keys():
    result = from_flags(
        "vllm", ["--speculative-config", '{"method":"ngram","num_speculative_tokens":10,"ngram_prompt_lookup_max":10}']
    )
    assert result.config["speculative"] == {"method": "ngram", "num_speculative_tokens": 10, "prompt_lookup_max": 10}
    assert codes(result) == ["renamed-field"]


def test_vllm_flat_flags_of_old_releases():
    result = from_flags("vllm", ["--speculative-model", "[ngram]", "--num-speculative-tokens", "1"])
    assert result.config["speculative"] == {"model": "[ngram]", "num_speculative_tokens": 1}
    assert codes(result) == ["renamed-option", "renamed-option"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_unknown_flag_names_the_nearest(engine):
    known = next(flag for flag in engines()[engine]["flags"] if flag.startswith("--spec"))
    result = from_flags(engine, [known[:-1] + "x", "1"])
    assert codes(result) == ["unknown-key"]
    assert known in (result.diagnostics[0].fix or "")


@pytest.mark.parametrize("settings", [None, 3, "text", ["a"], {}])
def test_settings_of_any_shape_do_not_raise(settings):
    for engine in engines():
        from_settings(engine, settings)


def test_dropped_setting_says_why():
    result = from_flags("llamacpp", ["--draft-p-min", "0.5"])
    assert codes(result) == ["renamed-option"] and "distribution" in result.diagnostics[0].message
