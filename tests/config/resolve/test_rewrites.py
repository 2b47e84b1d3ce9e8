"""Every row of the rewrite table, applied to a small config.json."""

from __future__ import annotations

from typing import Any

import pytest

import specdec
from specdec.config.checkpoint.facts.rewrites import rewrite
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.records.registry import builtin

N = {"num_nextn_predict_layers": 2}


def model(model_type: str, **more: Any) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": ["SomeForCausalLM"], **more}


def arch(name: str, **more: Any) -> dict[str, Any]:
    return {"model_type": "some", "architectures": [name], **more}


# id: (config.json, model_type after, architecture after, n_predict after, further values after)
MTP: dict[str, tuple[dict[str, Any], str, str, int | None, dict[str, Any]]] = {
    "parse": (arch("RadioMBartPrefixForCausalLM", decoder={"causal_vision_prefix": True}), "mtp", "ParseAuxMTPModel", 1, {"num_nextn_predict_layers": 1}),
    "dots3": (model("dots3_note", **N, layer_types=["full"], mtp_layer_types=["a", "b"]), "dots3_note_mtp", "Dots3NoteMTPModel", 2, {"layer_types": ["full", "a", "b"]}),
    "dots3 default": (model("dots3_note", layer_types=["full"]), "dots3_note_mtp", "Dots3NoteMTPModel", 1, {"layer_types": ["full", "sliding_attention"]}),
    "deepseek_v3": (model("deepseek_v3", **N), "deepseek_mtp", "DeepSeekMTPModel", 2, {}),
    "deepseek_v3 without": (model("deepseek_v3"), "deepseek_mtp", "DeepSeekMTPModel", None, {}),
    "deepseek_v32": (model("deepseek_v32", **N), "deepseek_mtp", "DeepseekV32MTPModel", 2, {}),
    "glm_moe_dsa": (model("glm_moe_dsa", **N), "deepseek_mtp", "DeepseekV32MTPModel", 2, {}),
    "deepseek_mtp": (model("deepseek_mtp", **N), "deepseek_mtp", "DeepSeekMTPModel", 2, {}),
    "deepseek_v4": (model("deepseek_v4", **N), "deepseek_mtp", "DeepSeekV4MTPModel", 2, {}),
    "deepseek_v41": (model("deepseek_v41", **N), "deepseek_mtp", "SomeForCausalLM", 2, {}),
    "pangu": (model("pangu_ultra_moe", **N), "pangu_ultra_moe_mtp", "OpenPanguMTPModel", 2, {}),
    "kimi_k3": (model("kimi_k3", text_config=N), "kimi_k3_mtp", "KimiK3MTPModel", 2, {}),
    "mimo": (arch("MiMoForCausalLM", **N), "mimo_mtp", "MiMoMTPModel", 2, {"num_hidden_layers": 0}),
    "mimo_v2": (arch("MiMoV2ForCausalLM", **N), "mimo_v2_mtp", "MiMoV2MTPModel", 1, {"num_hidden_layers": 0, "num_nextn_predict_layers": 1}),
    "mimo_v2 omni": (arch("MiMoV2OmniForCausalLM"), "mimo_v2_mtp", "MiMoV2OmniMTPModel", 1, {"num_hidden_layers": 0}),
    "mimo_v2 flash": (arch("MiMoV2FlashForCausalLM"), "mimo_v2_mtp", "MiMoV2MTPModel", 1, {"num_hidden_layers": 0}),
    "glm4_moe": (arch("Glm4MoeForCausalLM", **N), "glm4_moe_mtp", "Glm4MoeMTPModel", 2, {}),
    "glm4_moe_lite": (arch("Glm4MoeLiteForCausalLM", **N), "glm4_moe_lite_mtp", "Glm4MoeLiteMTPModel", 2, {"num_hidden_layers": 0}),
    "glm_ocr": (arch("GlmOcrForConditionalGeneration", **N), "glm_ocr_mtp", "GlmOcrMTPModel", 2, {"num_hidden_layers": 0}),
    "ernie": (model("ernie4_5_moe", **N), "ernie_mtp", "ErnieMTPModel", 2, {}),
    "ernie_mtp": (model("ernie_mtp", **N), "ernie_mtp", "ErnieMTPModel", 2, {}),
    "nemotron": (model("nemotron_h", **N), "nemotron_h_mtp", "NemotronHMTPModel", 2, {}),
    "nemotron puzzle": (model("nemotron_h_puzzle", **N), "nemotron_h_mtp", "NemotronHMTPModel", 2, {}),
    "nemotron without": (model("nemotron_h"), "nemotron_h", "SomeForCausalLM", None, {}),
    "nemotron omni": (arch("NemotronH_Omni_Reasoning_V3", text_config=model("nemotron_h", **N)), "nemotron_h_mtp", "NemotronHMTPModel", 2, {}),
    "nemotron super omni": (arch("NemotronH_Super_Omni_Reasoning_V3", text_config=model("nemotron_h", **N)), "nemotron_h_mtp", "NemotronHMTPModel", 2, {}),
    "qwen3_next": (model("qwen3_next", **N), "qwen3_next_mtp", "Qwen3NextMTP", 2, {}),
    "qwen4_exp": (model("qwen4_exp", text_config={"mtp_num_hidden_layers": 3, "hc_count": 4, **N}), "qwen4_exp_mtp", "Qwen4ExpMTP", 3, {"hc_mult": 4}),
    "qwen4_exp nextn": (model("qwen4_exp_text", text_config=N), "qwen4_exp_mtp", "Qwen4ExpMTP", 2, {}),
    "bailing_v3": (arch("BailingMoeV3ForCausalLM", **N), "bailing_hybrid_v3_mtp", "BailingMoeV3MTPModel", 2, {}),
    "bailing_v3 vl": (arch("BailingMoeV3VLForConditionalGeneration", text_config={**N, "hidden_size": 8}, quantization_config={"quant_method": "fp8"}), "bailing_hybrid_v3_mtp", "BailingMoeV3MTPModel", 2, {"hidden_size": 8, "quantization_config": {"quant_method": "fp8"}}),
    "bailing_hybrid": (model("bailing_hybrid", **N), "bailing_hybrid_mtp", "BailingMoeV25MTPModel", 2, {}),
    "bailing_v25": (arch("BailingMoeV2_5ForCausalLM", **N), "bailing_hybrid_mtp", "BailingMoeV25MTPModel", 2, {}),
    "exaone_moe": (model("exaone_moe", **N), "exaone_moe_mtp", "ExaoneMoeMTP", 2, {}),
    "exaone4_5": (model("exaone4_5_text", **N), "exaone4_5_mtp", "Exaone4_5_MTP", 2, {}),
    "qwen3_5": (model("qwen3_5", mtp_num_hidden_layers=1), "qwen3_5_mtp", "Qwen3_5MTP", 1, {}),
    "qwen3_5 text": (model("qwen3_5", text_config={"mtp_num_hidden_layers": 2}), "qwen3_5_mtp", "Qwen3_5MTP", 2, {}),
    "qwen3_5_text": (model("qwen3_5_text", mtp_num_hidden_layers=1), "qwen3_5_mtp", "Qwen3_5MTP", 1, {}),
    "qwen3_5_moe": (model("qwen3_5_moe", mtp_num_hidden_layers=1), "qwen3_5_mtp", "Qwen3_5MoeMTP", 1, {}),
    "intern_s2 moe": (model("intern_s2_preview", text_config={"model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 2}), "qwen3_5_mtp", "Qwen3_5MoeMTP", 2, {}),
    "intern_s2 dense": (model("intern_s2_preview", text_config={"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 2}), "qwen3_5_mtp", "Qwen3_5MTP", 2, {}),
    "mobius": (model("interns2_mobius", text_config={"mtp_num_hidden_layers": 2, "mtp_num_experts": 8, "mtp_num_experts_per_tok": 3, "num_experts": 64}), "qwen3_5_mtp", "InternS2MobiusMTP", 2, {"text_config.num_experts": 8, "text_config.num_experts_per_tok": 3, "text_config.model_type": "qwen3_5_moe_text"}),
    "longcat": (model("longcat_flash"), "longcat_flash_mtp", "LongCatFlashMTPModel", 1, {}),
    "step3p5": (model("step3p5", **N), "step3p5_mtp", "Step3p5MTP", 2, {}),
    "step3p7 arch": (arch("Step3p7ForConditionalGeneration", text_config={**N, "hidden_size": 8}, quantization_config={"quant_method": "fp8"}), "step3p5_mtp", "Step3p5MTP", 2, {"hidden_size": 8, "quantization_config": {"quant_method": "fp8"}}),
    "step5": (model("step5_vl"), "step5_mtp", "Step5MTP", 1, {}),
    "mistral large 3": ({"model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLM"], **N}, "deepseek_mtp", "EagleMistralLarge3ForCausalLM", 2, {}),
    "hy_v3": (model("hy_v3", **N), "hy_v3_mtp", "HYV3MTPModel", 2, {}),
    "hy_v4": (model("hy_v4", **N), "hy_v4_mtp", "HYV4MTPModel", 2, {}),
    "inkling": (model("inkling_mm_model", text_config={"hidden_size": 8}, mtp_config={**N, "chain_hidden_post_norm": True, "local_layer_ids": [0]}), "inkling_mtp", "InklingMTPModel", 2, {"num_nextn_predict_layers": 2, "chain_hidden_post_norm": True, "local_layer_ids": [0], "hidden_size": 8}),
    "gemma4": (model("gemma4_assistant", text_config={"num_kv_shared_layers": 4}), "gemma4_mtp", "Gemma4MTPModel", 1, {"text_config.num_kv_shared_layers": 0}),
    "gemma4 unified": (model("gemma4_unified_assistant"), "gemma4_mtp", "Gemma4MTPModel", 1, {}),
    "minimax vl": (model("minimax_m3_vl", text_config={"hidden_size": 8}, num_mtp_modules=3), "minimax_m3_mtp", "MiniMaxM3MTP", 3, {"hidden_size": 8}),
    "minimax arch": (arch("MiniMaxM3SparseForConditionalGeneration", text_config={}), "minimax_m3_mtp", "MiniMaxM3MTP", 1, {}),
    "minimax alone": (model("minimax_m3_mtp", num_mtp_modules=2), "minimax_m3_mtp", "MiniMaxM3MTP", 2, {}),
    "glm5_next": (model("glm5_next", text_config={**N, "index_share_for_mtp_iteration": True}), "glm5_next_mtp", "Glm5NextMTPModel", 2, {"index_share_for_mtp_iteration": True}),
    "transformers": (model("some", num_mtp_layers=2), "some", "TransformersForMTP", 2, {}),
}  # fmt: skip
DFLASH = {
    "muse glimmer": ({"model_type": "muse_glimmer_assistant", "architectures": ["MuseGlimmerAssistantModel"]}, {"dflash_config.causal": False, "vocab_size": 202048}),
    "muse glimmer stated": ({"model_type": "muse_glimmer_assistant", "vocab_size": 8, "dflash_config": {"causal": True}}, {"dflash_config.causal": True, "vocab_size": 8}),
}  # fmt: skip
DSPARK = {
    "qwen3": ({"model_type": "qwen3", "architectures": ["DSparkDraftModel"]}, {"architectures": ["Qwen3DSparkModel"]}),
    "in deepseek v4": (model("deepseek_v4", dspark_block_size=5), {"architectures": ["DSparkDraftModel"], "model_type": "deepseek_v4"}),
    "in deepseek v41": (model("deepseek_v41", dspark_block_size=5, dspark_target_layer_ids=[3, 4]), {"architectures": ["DSparkV41DraftModel"], "eagle_aux_hidden_state_layer_ids": [3, 4]}),
    "gemma4": ({"architectures": ["Gemma4DSparkModel"], "target_layer_ids": [1, 2]}, {"dspark_target_layer_ids": [1, 2]}),
    "an unknown draft stays": (arch("MySparkModel", block_size=5), {"architectures": ["MySparkModel"], "model_type": "some"}),
}  # fmt: skip


def value(config: Any, path: str) -> Any:
    for part in path.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize("case", MTP)
def test_mtp_rows(case: str) -> None:
    config, model_type, architecture, n_predict, more = MTP[case]
    before = repr(config)
    result, _ = rewrite(config, builtin().records["mtp"].rewrites)
    assert (result["model_type"], result["architectures"][0], result.get("n_predict")) == (
        model_type,
        architecture,
        n_predict,
    )
    assert {path: value(result, path) for path in more} == more
    assert repr(config) == before, "the checkpoint's own config must not change"


@pytest.mark.parametrize(("name", "rows"), [("dflash", DFLASH), ("dspark", DSPARK)])
def test_rows_of_block_drafts(name: str, rows: dict[str, Any]) -> None:
    for case, (config, expected) in rows.items():
        result, _ = rewrite(config, builtin().records[name].rewrites)
        assert {path: value(result, path) for path in expected} == expected, case


@pytest.mark.parametrize("model_type", ["moe", "pangu", "llama", "deepseek_v2", ""])
def test_similar_model_types_are_left_alone(model_type: str) -> None:
    config = model(model_type)
    assert rewrite(config, builtin().records["mtp"].rewrites)[0] == config


def test_checks_of_rows() -> None:
    rows = builtin().records["mtp"].rewrites
    with pytest.raises(CheckpointFault, match="no MTP weights"):
        rewrite(model("inkling_model", text_config={}, mtp_config={"num_nextn_predict_layers": 0}), rows)
    with pytest.raises(CheckpointFault, match="mtp_layer_types has 3 entries"):
        rewrite(model("dots3_note", **N, mtp_layer_types=["a", "b", "c"]), rows)


@pytest.mark.parametrize("case", ["kimi_k3", "glm5_next", "qwen3_5 text", "qwen4_exp nextn", "minimax vl"])
def test_families_with_one_module_stay_single(case: str) -> None:
    """Their count of trained drafts stands elsewhere than the count of modules."""
    speculative = {"method": "mtp", "model": "./d", "num_speculative_tokens": 6}
    result = specdec.resolve(
        {"target": {"model": "./t"}, "speculative": speculative}, target_config={}, draft_config=MTP[case][0]
    )
    assert result.unwrap().method == "mtp"


def test_a_small_model_of_an_mtp_family_can_still_be_a_draft_model() -> None:
    draft = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5",
        "mtp_num_hidden_layers": 1,
        "vocab_size": 64,
        "num_hidden_layers": 2,
    }
    target = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5",
        "vocab_size": 64,
        "num_hidden_layers": 4,
    }
    speculative = {"method": "draft_model", "model": "./d", "num_speculative_tokens": 2}
    result = specdec.resolve(
        {"target": {"model": "./t"}, "speculative": speculative}, target_config=target, draft_config=draft
    )
    assert result.unwrap().method == "draft_model"
