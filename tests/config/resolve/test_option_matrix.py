"""Which speculator reads which option, and what vLLM does with it: a field lands on exactly the methods that read it."""

from __future__ import annotations

import pytest

from specdec.config.records.registry import builtin

ALL = set(builtin().records)
DRAFTING = ALL - {"extract_hidden_states"}
HEADS = {"eagle", "eagle3", "peagle", "mtp", "multi_module_mtp"}
BLOCK = {"dflash", "dflash2", "lilicorr", "xpress", "dspark", "domino"}
MODELS = {"draft_model", "pard"}
FLAT = {"medusa", "mlp_speculator"}
WITH_MODEL = HEADS | BLOCK | MODELS | FLAT | {"gemma4"}
READERS = {
    "num_speculative_tokens": ALL,
    "num_speculative_tokens_per_batch_size": DRAFTING - {"suffix"},
    "model": WITH_MODEL, "revision": WITH_MODEL, "code_revision": WITH_MODEL, "quantization": WITH_MODEL, "max_model_len": WITH_MODEL,
    "hf_overrides": WITH_MODEL, "dtype": WITH_MODEL,
    "enforce_eager": HEADS | MODELS | {"gemma4"},
    "draft_tensor_parallel_size": HEADS | BLOCK | MODELS | {"gemma4"},
    "moe_backend": HEADS,
    "attention_backend": HEADS | BLOCK,
    "kv_cache_dtype": HEADS | BLOCK | MODELS,
    "draft_load_config": HEADS | BLOCK | {"gemma4"},
    "index_share_for_mtp_iteration": {"mtp", "multi_module_mtp"},
    "disable_padded_drafter_batch": HEADS - {"peagle"} | {"gemma4"},
    "disable_eagle_block_drop": HEADS | {"gemma4"},
    "disable_lookahead_block_hashes": HEADS | {"gemma4"},
    "draft_lm_head_quantization": HEADS - {"peagle"},
    "use_local_argmax_reduction": HEADS | MODELS | FLAT | {"gemma4"},
    "use_heterogeneous_vocab": MODELS, "allow_padded_vocab": MODELS,
    "prompt_lookup_max": {"ngram"}, "prompt_lookup_min": {"ngram"}, "prompt_lookup_match": {"ngram"},
    "parallel_drafting": MODELS | BLOCK | {"eagle", "eagle3", "peagle"},
    "suffix_decoding_max_tree_depth": {"suffix"}, "suffix_decoding_max_cached_requests": {"suffix"},
    "suffix_decoding_max_spec_factor": {"suffix"}, "suffix_decoding_min_token_prob": {"suffix"},
    "rejection_sample_method": DRAFTING, "synthetic_acceptance_rates": DRAFTING, "synthetic_acceptance_length": DRAFTING,
    "fly_window_size": DRAFTING, "fly_entropy_threshold": DRAFTING, "fly_entropy_top_k": DRAFTING,
    "enable_adaptive_verification": WITH_MODEL - {"xpress"}, "confidence_threshold": WITH_MODEL - {"xpress"},
    "draft_sample_method": WITH_MODEL,
    "dspark_draft_topk": {"dspark"}, "xpress_topc": {"xpress"},
    "tree": {"eagle", "eagle3"}, "aux_layers": {"eagle3", "peagle", "extract_hidden_states"} | BLOCK,
    "speculators": {"chain"},
}  # fmt: skip
# option -> methods with which vLLM 0.33 accepts it and does nothing
IGNORED_BY_VLLM = {
    "draft_tensor_parallel_size": {
        "eagle",
        "eagle3",
        "peagle",
        "mtp",
        "multi_module_mtp",
        "gemma4",
        "dflash",
        "dflash2",
        "lilicorr",
        "domino",
    }
}


@pytest.mark.parametrize("option", READERS)
def test_an_option_is_read_by_exactly_these(option: str) -> None:
    assert {name for name, record in builtin().records.items() if option in record.options} == READERS[option]


def test_the_table_above_is_complete() -> None:
    own = {"query_position", "output_dir", "output_layout", "trust_remote_code"}
    names = {option for record in builtin().records.values() for option in record.options}
    assert names - own == set(READERS)


@pytest.mark.parametrize("option", IGNORED_BY_VLLM)
def test_what_vllm_ignores(option: str) -> None:
    for name in READERS[option]:
        effect = builtin().records[name].options[option].engines.get("vllm", "read")
        assert effect.startswith("ignored") is (name in IGNORED_BY_VLLM[option]), name


def test_inheritance_is_a_stated_rule() -> None:
    rules = {option.name: {record.options[option.name].inherit for record in builtin().records.values() if option.name in record.options}
             for record in builtin().records.values() for option in record.options.values()}  # fmt: skip
    assert rules["dtype"] == {"target"}
    assert rules["kv_cache_dtype"] == {"target"}
    assert (
        rules["quantization"]
        == rules["hf_overrides"]
        == rules["revision"]
        == rules["trust_remote_code"]
        == {"same_checkpoint"}
    )
    assert rules["attention_backend"] == {"never"}


HASH_FACTORS = {
    "ngram": ["capabilities.uses_aux_hidden_states"],
    "draft_model": ["capabilities.uses_aux_hidden_states", "draft.config_hash"],
    "eagle": ["capabilities.uses_aux_hidden_states", "draft.config_hash"],
    "eagle3": ["capabilities.uses_aux_hidden_states", "draft.config_hash", "draft.aux_layer_ids"],
    "mtp": ["capabilities.uses_aux_hidden_states", "draft.config_hash", "options.index_share_for_mtp_iteration"],
    "dflash": ["capabilities.uses_aux_hidden_states", "draft.config_hash", "draft.aux_layer_ids"],
    "dspark": [
        "capabilities.uses_aux_hidden_states",
        "options.enable_adaptive_verification",
        "draft.config_hash",
        "draft.aux_layer_ids",
    ],
    "extract_hidden_states": ["capabilities.uses_aux_hidden_states"],
}


@pytest.mark.parametrize("name", HASH_FACTORS)
def test_hash_factors(name: str) -> None:
    assert list(builtin().records[name].hash_factors) == HASH_FACTORS[name]
