"""Capabilities and numbers of every record: the two tables that an engine builds on."""

from __future__ import annotations

from typing import Any

import pytest

import specdec
from specdec.config.records.registry import builtin

COLUMNS = (
    "uses_target_hidden_states", "uses_aux_hidden_states", "uses_separate_workspace_lane", "prefer_dense_token_history",
    "proposes_draft_tokens", "adaptive_verification_uses_draft_logits", "draft_has_own_vocab", "supports_watermarking",
    "supports_pcp", "shares_target_positions",
)  # fmt: skip
# one letter per column: T, F, or - where the question does not arise
CAPABILITIES = {
    "ngram":                 "F F F T T - F F F -",
    "suffix":                "F F F F T - F F F -",
    "draft_model":           "F F F F T T T F F F",
    "pard":                  "F F F F T T T F F F",
    "eagle":                 "T F F F T T F T F T",
    "eagle3":                "T T F F T T F T F T",
    "peagle":                "T T F F T T F F F T",
    "mtp":                   "T F F F T T F T T T",
    "multi_module_mtp":      "T F F F T T F T F T",
    "gemma4":                "T F F F T T F T T T",
    "dflash":                "T T F F T T F T F T",
    "dflash2":               "T T F F T T F F F T",
    "lilicorr":              "T T F F T T F F F T",
    "xpress":                "T T F F T F F F F T",
    "dspark":                "T T T F T F F T T T",
    "extract_hidden_states": "F T F F F - F F F T",
    "medusa":                "T F F F T T F F F -",
    "mlp_speculator":        "T F F F T T F F F -",
}  # fmt: skip

NUMBERS = (
    "num_lookahead_tokens", "max_num_new_slots_for_drafting", "num_prefill_lookahead_tokens", "num_hash_lookahead_tokens",
    "draft_query_rows", "max_num_draft_seqs",
)  # fmt: skip


def expected_numbers(name: str, k: int, b: int, anchor: bool) -> tuple[Any, ...]:
    """The row of the table, computed here by hand-written arithmetic."""
    block = k if anchor else k + 1
    rows: dict[str, tuple[Any, ...]] = {
        "ngram": (0, 0, 0, 0, 0, None),
        "suffix": (0, 0, 0, 0, 0, None),
        "draft_model": (k, 1, 0, 0, 1, None),
        "pard": (k, k, 0, 0, k, None),
        "eagle": (k, 0, 1, 1, 1, None),
        "eagle3": (k, 0, 1, 1, 1, None),
        "peagle": (k, k - 1, 1, 1, k, None),
        "mtp": (k, 0, 1, 1, 1, None),
        "multi_module_mtp": (k, 0, k, k, k + 1, None),
        "gemma4": (k, 0, 1, 1, 1, None),
        "extract_hidden_states": (0, 0, 0, 0, 0, None),
    }
    return rows.get(name, (block, 0, 1, 0, block, b // block))


TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 256,
}  # fmt: skip
HEAD = {**TARGET, "num_hidden_layers": 1}
AUX = {"target_layer_ids": [1, 5, 8], "mask_token_id": 127}
DEEPSEEK = {**TARGET, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
DRAFTS: dict[str, Any] = {
    "draft_model": {**HEAD, "num_hidden_layers": 2},
    "pard": {**HEAD, "num_hidden_layers": 2, "pard_token": 127},
    "eagle": {**HEAD, "architectures": ["EagleLlamaForCausalLM"]},
    "eagle3": {**HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32, "eagle_aux_hidden_state_layer_ids": [2, 6, 9]},
    "peagle": {**HEAD, "architectures": ["PEagleDraftModel"], "mask_token_id": 7, "eagle_aux_hidden_state_layer_ids": [2, 6, 9]},
    "mtp": {**DEEPSEEK, "num_nextn_predict_layers": 1},
    "multi_module_mtp": {**DEEPSEEK, "num_nextn_predict_layers": 4},
    "gemma4": {"model_type": "gemma4_assistant", "architectures": ["Gemma4AssistantForCausalLM"], "backbone_hidden_size": 64, "text_config": {**HEAD, "hidden_size": 32}},
    "dflash": {**HEAD, "architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": AUX},
    "dflash2": {**HEAD, "architectures": ["DFlash2DraftModel"], "dflash_config": {**AUX, "block_size": 8, "selector_rank": 8, "selector_top_k": 4, "conv_kernel_size": 2, "conv_group_size": 16}},
    "lilicorr": {**HEAD, "architectures": ["LiLiCorrDraftModel"], "dflash_config": {**AUX, "block_size": 8, "lilicorr_candidate_topk": 8}},
    "xpress": {**HEAD, "architectures": ["Qwen3XPressModel"], "dflash_config": AUX},
    "dspark": {**HEAD, "architectures": ["Qwen3DSparkModel"], "block_size": 8, **AUX, "markov_rank": 8},
}  # fmt: skip


def resolved(name: str, k: int, b: int, draft: Any, **engine: Any) -> Any:
    speculative: dict[str, Any] = {"method": name, "num_speculative_tokens": k}
    if draft is not None:
        speculative["model"] = "./draft"
    config = {
        "target": {"model": "./target"},
        "speculative": speculative,
        "engine": {"max_num_batched_tokens": b, **engine},
    }
    return specdec.resolve(config, target_config=TARGET, draft_config=draft).unwrap()


@pytest.mark.parametrize("name", CAPABILITIES)
def test_capabilities(name: str) -> None:
    flags = builtin().records[name].capabilities
    for column, letter in zip(COLUMNS, CAPABILITIES[name].split(), strict=True):
        if letter != "-":
            assert flags[column] is (letter == "T"), column


@pytest.mark.parametrize(
    "name", [n for n in CAPABILITIES if n not in ("medusa", "mlp_speculator", "extract_hidden_states")]
)
@pytest.mark.parametrize("k", [1, 4, 7])
@pytest.mark.parametrize("b", [512, 2048])
def test_numbers(name: str, k: int, b: int) -> None:
    draft = DRAFTS.get(name)
    expected_name = "mtp" if name == "multi_module_mtp" and k == 1 else name
    if name == "multi_module_mtp":
        draft = {**draft, "num_nextn_predict_layers": max(k, 2)}
    if name == "mtp":
        draft = {**draft, "num_nextn_predict_layers": 1}
    if name == "xpress":
        draft = {**draft, "xpress_block_size": k + 1}
    config = resolved("mtp" if expected_name == "mtp" else name, k, b, draft)
    assert config.method == expected_name
    assert tuple(config.numbers.get(n) for n in NUMBERS) == expected_numbers(
        expected_name, k, b, anchor=name == "dspark"
    )
    assert config.numbers["verify_width"] == k + 1


@pytest.mark.parametrize("k", [1, 4, 7])
def test_dspark_in_the_fill_in_layout_takes_one_row_more(k: int) -> None:
    config = resolved("dspark", k, 512, {**DRAFTS["dspark"], "sample_from_anchor": False})
    assert tuple(config.numbers.get(n) for n in NUMBERS) == (k + 1, 0, 1, 0, k + 1, 512 // (k + 1))


def test_extract_hidden_states_owes_nothing() -> None:
    config = resolved("extract_hidden_states", 1, 512, None)
    assert tuple(config.numbers.get(n) for n in NUMBERS) == expected_numbers("extract_hidden_states", 1, 512, False)


@pytest.mark.parametrize(
    "engine",
    [{"enable_prefix_caching": False}, {"kv_connector": "NixlConnector"}],
    ids=["no prefix cache", "connector"],
)
def test_hash_lookahead_falls_away_with_the_cache(engine: dict[str, Any]) -> None:
    assert resolved("eagle", 4, 512, DRAFTS["eagle"], **engine).numbers["num_hash_lookahead_tokens"] == 0


def test_a_draft_model_limits_the_engine_and_a_cache_only_head_does_not() -> None:
    short = {"max_position_embeddings": 32}
    assert resolved("draft_model", 4, 512, {**DRAFTS["draft_model"], **short}).numbers["max_model_len_limit"] == 32
    assert resolved("eagle", 4, 512, {**DRAFTS["eagle"], **short}).numbers["max_model_len_limit"] is None
    dynamic = {**DRAFTS["eagle"], **short, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    assert resolved("eagle", 4, 512, dynamic).numbers["max_model_len_limit"] == 64  # the factor stretches the positions


def test_eagle3_without_aux_states() -> None:
    draft = {**DRAFTS["eagle3"], "eagle_config": {"use_aux_hidden_state": False}}
    assert resolved("eagle3", 4, 512, draft).uses_aux_hidden_states is False
    assert resolved("eagle3", 4, 512, DRAFTS["eagle3"]).uses_aux_hidden_states is True


@pytest.mark.parametrize("name", [n for n in DRAFTS if n != "multi_module_mtp"])
def test_an_unnamed_method_is_what_the_checkpoint_declares(name: str) -> None:
    draft = {**DRAFTS[name], "xpress_block_size": 8} if name == "xpress" else DRAFTS[name]
    block = {"model": "./draft", "num_speculative_tokens": 7}
    result = specdec.resolve(
        {"target": {"model": "./t"}, "speculative": block}, target_config=TARGET, draft_config=draft
    )
    assert result.unwrap().method == name


@pytest.mark.parametrize(
    ("name", "k"),
    [("mtp", 1), ("multi_module_mtp", 4), ("gemma4", 1), ("dflash", 7), ("dflash2", 7), ("lilicorr", 7), ("dspark", 8)],
)
def test_k_comes_from_the_checkpoint(name: str, k: int) -> None:
    block = {"method": name, "model": "./draft"}
    result = specdec.resolve(
        {"target": {"model": "./t"}, "speculative": block}, target_config=TARGET, draft_config=DRAFTS[name]
    )
    assert result.unwrap().num_speculative_tokens == k
