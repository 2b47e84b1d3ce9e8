"""What vLLM 0.33 does with each option: what it reads is written, what it ignores or rejects is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

import specdec
from specdec.config.export import export
from specdec.config.records.registry import builtin

COLUMNS = ("ngram", "draft_model", "eagle", "eagle3", "mtp", "gemma4", "dflash", "dflash2", "lilicorr", "xpress", "dspark",
           "extract_hidden_states")  # fmt: skip
VALUES: dict[str, Any] = {
    "moe_backend": "triton", "attention_backend": "TRITON_ATTN", "kv_cache_dtype": "fp8", "draft_load_config": {"load_format": "safetensors"},
    "draft_tensor_parallel_size": 2, "draft_lm_head_quantization": "fp8", "index_share_for_mtp_iteration": True, "prompt_lookup_max": 4,
    "dspark_draft_topk": 8, "xpress_topc": 64, "use_local_argmax_reduction": True, "draft_sample_method": "probabilistic",
    "enable_adaptive_verification": True, "disable_padded_drafter_batch": True, "enforce_eager": True,
}  # fmt: skip
# R: vLLM's default (V2) runner reads it. I: it is accepted and has no effect. E: vLLM raises an error.
TABLE = {
    "moe_backend":                   "I I R R R I I I I I I I",
    "attention_backend":             "I I R R R I R R R R R I",
    "kv_cache_dtype":                "I R R R R I R R R R R I",
    "draft_load_config":             "I I R R R R R R R R R I",
    "draft_tensor_parallel_size":    "I R I I I I I I I R R I",
    "draft_lm_head_quantization":    "E E R R R E E E E E E E",
    "index_share_for_mtp_iteration": "E E E E R I E E E E E E",
    "prompt_lookup_max":             "R I I I I I I I I I I I",
    "dspark_draft_topk":             "I E E E E E E E E E R I",
    "xpress_topc":                   "I E E E E E E E E R E I",
    "use_local_argmax_reduction":    "I R R R R R E E E I I R",
    "draft_sample_method":           "I R R R R R R R R I R E",
    "enable_adaptive_verification":  "I R R R R R R R R I R I",
    "disable_padded_drafter_batch":  "I I I I I I I I I I I E",
    "enforce_eager":                 "I I I I I I I I I I I I",
}  # fmt: skip
# read by vLLM where the draft's class has top-token extraction, which no class of these methods is known to have
STRICTER = {("use_local_argmax_reduction", "extract_hidden_states")}

TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 256,
}  # fmt: skip
DEEPSEEK = {**TARGET, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
HEAD = {**TARGET, "num_hidden_layers": 1}
AUX = {"target_layer_ids": [1, 5, 8], "mask_token_id": 127}
DRAFTS: dict[str, Any] = {
    "draft_model": {**HEAD, "num_hidden_layers": 2},
    "pard": {**HEAD, "num_hidden_layers": 2, "pard_token": 127},
    "eagle": {**HEAD, "architectures": ["EagleLlamaForCausalLM"]},
    "eagle3": {**HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32, "eagle_aux_hidden_state_layer_ids": [2, 6, 9]},
    "peagle": {**HEAD, "architectures": ["PEagleDraftModel"], "mask_token_id": 7, "eagle_aux_hidden_state_layer_ids": [2, 6, 9]},
    "gemma4": {"model_type": "gemma4_assistant", "architectures": ["Gemma4AssistantForCausalLM"], "backbone_hidden_size": 64, "text_config": {**HEAD, "hidden_size": 32}},
    "dflash": {**HEAD, "architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": AUX},
    "dflash2": {**HEAD, "architectures": ["DFlash2DraftModel"], "dflash_config": {**AUX, "block_size": 8, "selector_rank": 8, "selector_top_k": 4, "conv_kernel_size": 2, "conv_group_size": 16}},
    "lilicorr": {**HEAD, "architectures": ["LiLiCorrDraftModel"], "dflash_config": {**AUX, "block_size": 8, "lilicorr_candidate_topk": 8}},
    "xpress": {**HEAD, "architectures": ["Qwen3XPressModel"], "dflash_config": AUX, "xpress_block_size": 5},
    "dspark": {**HEAD, "architectures": ["Qwen3DSparkModel"], "block_size": 8, **AUX, "markov_rank": 8},
}  # fmt: skip
K = {"mtp": 1, "extract_hidden_states": 1}
RUNS_IN_VLLM = [name for name, record in builtin().records.items() if record.engines["vllm"].get("supported", True)]


def resolved(method: str, **options: Any) -> specdec.Resolution:
    """The method at four drafted tokens (one where it drafts one), against small checkpoints."""
    target = TARGET
    if method in ("mtp", "multi_module_mtp"):
        target = {**DEEPSEEK, "num_nextn_predict_layers": 4 if method == "multi_module_mtp" else 1}
    block = {"method": method, "num_speculative_tokens": K.get(method, 4), **options}
    if method in DRAFTS:
        block["model"] = "./draft"
    document: dict[str, Any] = {"target": {"model": "./target"}, "speculative": block}
    if "draft_tensor_parallel_size" in options:
        document["engine"] = {"tensor_parallel_size": 2}
    return specdec.resolve(document, target_config=target, draft_config=DRAFTS.get(method))


@pytest.mark.parametrize("option", TABLE)
@pytest.mark.parametrize("method", COLUMNS)
def test_an_option_is_written_or_refused(option: str, method: str) -> None:
    effect, value = TABLE[option].split()[COLUMNS.index(method)], VALUES[option]
    result = resolved(method, **{option: value})
    if effect == "R" and (option, method) not in STRICTER:
        exported = export(result.unwrap(), "vllm")
        assert exported.ok, exported.diagnostics
        assert exported.settings[option] == value
        return
    errors = result.errors or [d for d in export(result.unwrap(), "vllm").diagnostics if d.severity == "error"]
    assert errors, f"vLLM would do nothing with {option} for {method}"
    assert any(option in f"{d.path} {d.message}" for d in errors), errors


@pytest.mark.parametrize("method", RUNS_IN_VLLM)
def test_settings_pasted_back_resolve_to_the_same_config(method: str) -> None:
    first = resolved(method).unwrap()
    assert first.method == method
    exported = export(first, "vllm")
    assert exported.ok, exported.diagnostics
    target = {**DEEPSEEK, "num_nextn_predict_layers": 4 if method == "multi_module_mtp" else 1}
    document = {"target": {"model": "./target"}, "speculative": exported.settings}
    own = method in ("mtp", "multi_module_mtp")
    again = specdec.resolve(document, target_config=target if own else TARGET, draft_config=DRAFTS.get(method)).unwrap()
    assert (again.method, again.config_hash) == (first.method, first.config_hash)


def test_an_option_of_the_old_runner_is_written_when_that_runner_runs() -> None:
    assert export(resolved("peagle", enforce_eager=True).unwrap(), "vllm").settings["enforce_eager"] is True
    refused = export(resolved("eagle", enforce_eager=True).unwrap(), "vllm")
    assert "V2 runner" in refused.diagnostics[-1].message and not refused.ok


def test_an_option_of_some_architectures_is_refused_for_others() -> None:
    draft = {**DRAFTS["dspark"], "architectures": ["Gemma4DSparkModel"]}
    block = {"method": "dspark", "model": "./draft", "num_speculative_tokens": 4, "dspark_draft_topk": 8}
    document = {"target": {"model": "./target"}, "speculative": block}
    config = specdec.resolve(document, target_config=TARGET, draft_config=draft).unwrap()
    (finding,) = [d for d in export(config, "vllm").diagnostics if d.severity == "error"]
    assert "Gemma4DSparkModel" in finding.message and finding.path == "speculative.dspark_draft_topk"
