"""Every row of the rewrite table, with a small config.json; and the mechanism on rows of its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from specdec.config.checkpoint import CheckpointFault, rewrite
from specdec.config.language.record import RewriteSpec
from specdec.config.records.registry import builtin

NEXTN = {"num_nextn_predict_layers": 2}
TEXT = {"text_config": {"model_type": "inner_text", "hidden_size": 8, **NEXTN}}
QUANT = {"quantization_config": {"quant_method": "fp8"}}

# config -> what the rewritten config must say; "model_type" and "architectures" as MTP loaders expect them
MTP_ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"architectures": ["RadioMBartPrefixForCausalLM"], "decoder": {"causal_vision_prefix": True}},
        {"model_type": "mtp", "architectures": ["ParseAuxMTPModel"], "n_predict": 1, "num_nextn_predict_layers": 1},
    ),
    (
        {"model_type": "dots3_note", "layer_types": ["full_attention"], **NEXTN},
        {
            "model_type": "dots3_note_mtp",
            "architectures": ["Dots3NoteMTPModel"],
            "n_predict": 2,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    (
        {"model_type": "dots3_note", "layer_types": ["a"], "mtp_layer_types": ["b"], "num_nextn_predict_layers": 1},
        {"layer_types": ["a", "b"], "n_predict": 1},
    ),
    (
        {"model_type": "deepseek_v3", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepSeekMTPModel"], "n_predict": 2},
    ),
    ({"model_type": "deepseek_v3"}, {"model_type": "deepseek_mtp", "n_predict": None}),
    (
        {"model_type": "deepseek_v32", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepseekV32MTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "glm_moe_dsa", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepseekV32MTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "deepseek_mtp", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepSeekMTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "deepseek_v4", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepSeekV4MTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "deepseek_v41", "architectures": ["DeepseekV41ForCausalLM"], **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["DeepseekV41ForCausalLM"], "n_predict": 2},
    ),
    (
        {"model_type": "pangu_ultra_moe", **NEXTN},
        {"model_type": "pangu_ultra_moe_mtp", "architectures": ["OpenPanguMTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "kimi_k3", **TEXT},
        {"model_type": "kimi_k3_mtp", "architectures": ["KimiK3MTPModel"], "n_predict": 2},
    ),
    (
        {"architectures": ["MiMoForCausalLM"], **NEXTN},
        {"model_type": "mimo_mtp", "architectures": ["MiMoMTPModel"], "n_predict": 2, "num_hidden_layers": 0},
    ),
    *(
        (
            {"architectures": [name], **NEXTN},
            {
                "model_type": "mimo_v2_mtp",
                "architectures": [new],
                "n_predict": 1,
                "num_hidden_layers": 0,
                "num_nextn_predict_layers": 1,
            },
        )
        for name, new in (
            ("MiMoV2ForCausalLM", "MiMoV2MTPModel"),
            ("MiMoV2OmniForCausalLM", "MiMoV2OmniMTPModel"),
            ("MiMoV2FlashForCausalLM", "MiMoV2MTPModel"),
        )
    ),
    (
        {"architectures": ["Glm4MoeForCausalLM"], **NEXTN},
        {"model_type": "glm4_moe_mtp", "architectures": ["Glm4MoeMTPModel"], "n_predict": 2},
    ),
    (
        {"architectures": ["Glm4MoeLiteForCausalLM"], **NEXTN},
        {
            "model_type": "glm4_moe_lite_mtp",
            "architectures": ["Glm4MoeLiteMTPModel"],
            "n_predict": 2,
            "num_hidden_layers": 0,
        },
    ),
    (
        {"architectures": ["GlmOcrForConditionalGeneration"], **NEXTN},
        {"model_type": "glm_ocr_mtp", "architectures": ["GlmOcrMTPModel"], "n_predict": 2, "num_hidden_layers": 0},
    ),
    (
        {"model_type": "ernie4_5_moe", **NEXTN},
        {"model_type": "ernie_mtp", "architectures": ["ErnieMTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "ernie_mtp", **NEXTN},
        {"model_type": "ernie_mtp", "architectures": ["ErnieMTPModel"], "n_predict": 2},
    ),
    (
        {"architectures": ["NemotronH_Super_Omni_Reasoning_V3"], "text_config": {"model_type": "nemotron_h", **NEXTN}},
        {"model_type": "nemotron_h_mtp", "architectures": ["NemotronHMTPModel"], "n_predict": 2},
    ),
    (
        {"model_type": "nemotron_h_puzzle", **NEXTN},
        {"model_type": "nemotron_h_mtp", "architectures": ["NemotronHMTPModel"], "n_predict": 2},
    ),
    ({"model_type": "nemotron_h"}, {"model_type": "nemotron_h"}),
    (
        {"model_type": "qwen3_next", **NEXTN},
        {"model_type": "qwen3_next_mtp", "architectures": ["Qwen3NextMTP"], "n_predict": 2},
    ),
    (
        {"model_type": "qwen4_exp", "text_config": {"mtp_num_hidden_layers": 3, "hc_count": 4}},
        {"model_type": "qwen4_exp_mtp", "architectures": ["Qwen4ExpMTP"], "n_predict": 3, "hc_mult": 4},
    ),
    ({"model_type": "qwen4_exp_text", **NEXTN}, {"model_type": "qwen4_exp_mtp", "n_predict": 2}),
    (
        {"architectures": ["BailingMoeV3ForCausalLM"], **NEXTN},
        {"model_type": "bailing_hybrid_v3_mtp", "architectures": ["BailingMoeV3MTPModel"], "n_predict": 2},
    ),
    (
        {"architectures": ["BailingMoeV3VLForConditionalGeneration"], **TEXT, **QUANT},
        {
            "model_type": "bailing_hybrid_v3_mtp",
            "architectures": ["BailingMoeV3MTPModel"],
            "n_predict": 2,
            "hidden_size": 8,
            **QUANT,
        },
    ),
    (
        {"model_type": "bailing_hybrid", **NEXTN},
        {"model_type": "bailing_hybrid_mtp", "architectures": ["BailingMoeV25MTPModel"], "n_predict": 2},
    ),
    ({"architectures": ["BailingMoeV2_5ForCausalLM"], **NEXTN}, {"model_type": "bailing_hybrid_mtp", "n_predict": 2}),
    (
        {"model_type": "exaone_moe", **NEXTN},
        {"model_type": "exaone_moe_mtp", "architectures": ["ExaoneMoeMTP"], "n_predict": 2},
    ),
    (
        {"model_type": "exaone4_5_text", **NEXTN},
        {"model_type": "exaone4_5_mtp", "architectures": ["Exaone4_5_MTP"], "n_predict": 2},
    ),
    (
        {"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 1}},
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MTP"], "n_predict": 1},
    ),
    (
        {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1},
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MTP"], "n_predict": 1},
    ),
    (
        {"model_type": "qwen3_5_moe", "mtp_num_hidden_layers": 1},
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MoeMTP"], "n_predict": 1},
    ),
    (
        {"model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 1},
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MoeMTP"]},
    ),
    (
        {
            "model_type": "intern_s2_preview",
            "text_config": {"model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 1},
        },
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MoeMTP"], "n_predict": 1},
    ),
    (
        {"model_type": "intern_s2_preview", "text_config": {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1}},
        {"model_type": "qwen3_5_mtp", "architectures": ["Qwen3_5MTP"], "n_predict": 1},
    ),
    (
        {
            "model_type": "interns2_mobius",
            "text_config": {"mtp_num_hidden_layers": 1, "mtp_num_experts": 4, "num_experts": 9},
        },
        {
            "model_type": "qwen3_5_mtp",
            "architectures": ["InternS2MobiusMTP"],
            "n_predict": 1,
            "text_config": {
                "model_type": "qwen3_5_moe_text",
                "mtp_num_hidden_layers": 1,
                "mtp_num_experts": 4,
                "num_experts": 4,
            },
        },
    ),
    (
        {"model_type": "longcat_flash"},
        {"model_type": "longcat_flash_mtp", "architectures": ["LongCatFlashMTPModel"], "n_predict": 1},
    ),
    (
        {"model_type": "step3p5", **TEXT, **QUANT},
        {
            "model_type": "step3p5_mtp",
            "architectures": ["Step3p5MTP"],
            "n_predict": 2,
            "hidden_size": 8,
            "num_nextn_predict_layers": 2,
            **QUANT,
        },
    ),
    (
        {"architectures": ["Step3p7ForConditionalGeneration"], "text_config": {"hidden_size": 8}},
        {"model_type": "step3p5_mtp", "n_predict": 1},
    ),
    (
        {"model_type": "step5_vl", **TEXT, **QUANT},
        {"model_type": "step5_mtp", "architectures": ["Step5MTP"], "n_predict": 2, **QUANT},
    ),
    (
        {"architectures": ["MistralLarge3ForCausalLM"], "model_type": "deepseek_v3", **NEXTN},
        {"model_type": "deepseek_mtp", "architectures": ["EagleMistralLarge3ForCausalLM"]},
    ),
    ({"model_type": "hy_v3", **NEXTN}, {"model_type": "hy_v3_mtp", "architectures": ["HYV3MTPModel"], "n_predict": 2}),
    ({"model_type": "hy_v4", **NEXTN}, {"model_type": "hy_v4_mtp", "architectures": ["HYV4MTPModel"], "n_predict": 2}),
    (
        {
            "model_type": "inkling_mm_model",
            "text_config": {"hidden_size": 8},
            "mtp_config": {**NEXTN, "local_layer_ids": [1]},
        },
        {
            "model_type": "inkling_mtp",
            "architectures": ["InklingMTPModel"],
            "n_predict": 2,
            "num_nextn_predict_layers": 2,
            "hidden_size": 8,
            "local_layer_ids": [1],
        },
    ),
    (
        {"model_type": "gemma4_unified_assistant", "text_config": {"num_kv_shared_layers": 4}},
        {
            "model_type": "gemma4_mtp",
            "architectures": ["Gemma4MTPModel"],
            "n_predict": 1,
            "text_config": {"num_kv_shared_layers": 0},
        },
    ),
    (
        {"model_type": "minimax_m3_vl", "num_mtp_modules": 3, "text_config": {"hidden_size": 8}},
        {"model_type": "minimax_m3_mtp", "architectures": ["MiniMaxM3MTP"], "n_predict": 3, "hidden_size": 8},
    ),
    (
        {"model_type": "minimax_m3_mtp", "num_mtp_modules": 2},
        {"model_type": "minimax_m3_mtp", "architectures": ["MiniMaxM3MTP"], "n_predict": 2},
    ),
    (
        {"model_type": "glm5_next", "text_config": {**NEXTN, "index_share_for_mtp_iteration": True}},
        {
            "model_type": "glm5_next_mtp",
            "architectures": ["Glm5NextMTPModel"],
            "n_predict": 2,
            "index_share_for_mtp_iteration": True,
        },
    ),
    (
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    ),
    ({}, {}),
]


@pytest.mark.parametrize(("config", "wanted"), MTP_ROWS)
def test_mtp_row(config: dict[str, Any], wanted: dict[str, Any]) -> None:
    before = copy.deepcopy(config)
    result, trace = rewrite(config, builtin().records["mtp"].rewrites)
    assert {key: result.get(key) for key in wanted} == wanted
    assert bool(trace) == (result != before)
    assert config == before


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 0}}, "MTP weights"),
        ({"model_type": "dots3_note", "mtp_layer_types": ["a"], "num_nextn_predict_layers": 2}, "mtp_layer_types"),
    ],
)
def test_a_contract_that_is_broken(config: dict[str, Any], word: str) -> None:
    with pytest.raises(CheckpointFault, match=word):
        rewrite(config, builtin().records["mtp"].rewrites)


@pytest.mark.parametrize(
    ("method", "config", "wanted"),
    [
        (
            "dspark",
            {"architectures": ["DSparkDraftModel"], "model_type": "qwen3"},
            {"architectures": ["Qwen3DSparkModel"]},
        ),
        (
            "dspark",
            {"architectures": ["SomethingNew"], "model_type": "x"},
            {"architectures": ["SomethingNew"], "model_type": "x"},
        ),
        ("dspark", {"model_type": "deepseek_v4", "dspark_block_size": 5}, {"architectures": ["DSparkDraftModel"]}),
        ("dspark", {"model_type": "deepseek_v41", "dspark_block_size": 5}, {"architectures": ["DSparkV41DraftModel"]}),
        (
            "dspark",
            {"architectures": ["Gemma4DSparkModel"], "target_layer_ids": [5, 17]},
            {"dspark_target_layer_ids": [5, 17]},
        ),
        (
            "dflash",
            {"model_type": "muse_glimmer_assistant"},
            {"vocab_size": 202048, "dflash_config": {"causal": False}},
        ),
        ("dflash", {"model_type": "muse_glimmer_assistant", "vocab_size": 9}, {"vocab_size": 9}),
        ("draft_model", {"model_type": "qwen3_5", "mtp_num_hidden_layers": 1}, {"model_type": "qwen3_5"}),
    ],
)
def test_rows_of_other_records(method: str, config: dict[str, Any], wanted: dict[str, Any]) -> None:
    result, _ = rewrite(config, builtin().records[method].rewrites)
    assert {key: result.get(key) for key in wanted} == wanted


def test_rows_run_in_order_and_a_final_row_ends() -> None:
    rows = [
        RewriteSpec({"model_type": ["a"]}, set={"model_type": "b"}),
        RewriteSpec({"model_type": ["b"]}, set={"model_type": "c"}),
    ]
    assert rewrite({"model_type": "a"}, rows)[0] == {"model_type": "c"}
    final = [RewriteSpec({"model_type": ["a"]}, set={"model_type": "b"}, final=True), rows[1]]
    assert rewrite({"model_type": "a"}, final)[0] == {"model_type": "b"}


def test_promotion_copies_deeply() -> None:
    config = {"model_type": "a", "text_config": {"rope": {"theta": 1}}}
    result, trace = rewrite(
        config, [RewriteSpec({"has": ["text_config"]}, promote="text_config", set={"rope.theta": 2})]
    )
    assert result["rope"] == {"theta": 2} and config["text_config"] == {"rope": {"theta": 1}}
    assert trace[0].startswith("text_config promoted")


def test_an_unknown_condition_is_a_fault_of_the_record() -> None:
    with pytest.raises(ValueError, match="unknown condition"):
        rewrite({}, [RewriteSpec({"color": "red"})])
