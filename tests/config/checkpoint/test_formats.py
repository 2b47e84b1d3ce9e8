"""Every public checkpoint format is recognised from its config.json and tensor names, without a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.config.checkpoint import Checkpoint, detect, inspect_draft
from specdec.config.registry import builtin

CONFIGS = Path(__file__).parents[2] / "fixtures" / "draft_configs"
TARGET = {"hidden_size": 64, "num_hidden_layers": 36, "vocab_size": 128, "num_attention_heads": 4, "head_dim": 16}


def speculators(kind: str, **more: Any) -> dict[str, Any]:
    """The speculators library's layout."""
    return {
        "speculators_model_type": kind,
        "architectures": [f"{kind.title()}DraftModel"],
        "transformer_layer_config": {
            "model_type": "qwen3",
            "vocab_size": 128,
            "hidden_size": 64,
            "num_attention_heads": 4,
        },
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": "org/target"},
        },
        **more,
    }


def head(**more: Any) -> dict[str, Any]:
    """A head that kept the architecture of its target, as many communities publish it."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, **more,
    }  # fmt: skip


def layer(prefix: str = "layers.0.", width: int = 64) -> dict[str, list[int]]:
    rows = {"q": 64, "k": 32, "v": 32}
    return {f"{prefix}self_attn.{x}_proj.weight": [n, width] for x, n in rows.items()}


EAGLE1 = {
    "fc.weight": [64, 128],
    **layer(),
    "layers.0.post_attention_layernorm.weight": [64],
    "embed_tokens.weight": [128, 64],
}
EAGLE3 = {"fc.weight": [64, 192], **layer("midlayer.", 128), "midlayer.hidden_norm.weight": [64], "norm.weight": [64],
          "lm_head.weight": [32, 64], "d2t": [32], "t2d": [128]}  # fmt: skip
DFLASH = {"fc.weight": [64, 192], "hidden_norm.weight": [64], "norm.weight": [64], **layer()}

SELECTOR = {
    f"candidate_selector.{n}": [128, 4]
    for n in ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
}

FORMATS: dict[str, tuple[str, dict[str, Any], dict[str, list[int]] | None, dict[str, Any]]] = {
    # what it is: record, config, tensors, facts that must come out
    "SafeAILab EAGLE-1, by tensors": ("eagle", head(bias=False), EAGLE1, {"embed_tokens": "draft", "lm_head": "target", "head_dim": 16}),
    "EAGLE-1 renamed": ("eagle", head(architectures=["LlamaForCausalLMEagle"]), None, {"num_attention_heads": 4}),
    "EAGLE-1 wrapped": ("eagle", {"model_type": "eagle", "model": head()}, None, {"hidden_size": 64, "vocab_size": 128}),
    "speculators EAGLE-1": ("eagle", speculators("eagle"), None, {"speculative_tokens": 5}),
    "SafeAILab EAGLE-3": ("eagle3", head(draft_vocab_size=32), None, {"draft_vocab_size": 32, "rope_theta": 10000.0}),
    "SafeAILab EAGLE-3, by tensors": ("eagle3", head(), EAGLE3, {"lm_head": "draft", "head_dim": 16}),
    "AngelSlim EAGLE-3": ("eagle3", head(architectures=["Eagle3LlamaForCausalLM"], target_model_type="qwen3"), None, {"target_model_type": "qwen3"}),
    "SpecForge EAGLE-3": (
        "eagle3",
        head(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=32, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}),
        None,
        {"aux_layer_ids": [2, 18, 33]},
    ),
    "Model-Optimizer EAGLE-3 with the last boundary": (
        "eagle3",
        head(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=32,
             eagle_config={"eagle_aux_hidden_state_layer_ids": [24, 30, 36], "norm_before_fc": True, "use_aux_hidden_state": True}),
        None,
        {"aux_layer_ids": [24, 30, 36], "norm_before_fc": True},
    ),
    "speculators EAGLE-3": (
        "eagle3",
        speculators("eagle3", draft_vocab_size=32, eagle_aux_hidden_state_layer_ids=[2, 18, 33], norm_before_fc=True),
        None,
        {"speculative_tokens": 5, "aux_layer_ids": [2, 18, 33], "norm_before_residual": True, "vocab_size": 128},
    ),
    "speculators P-EAGLE": ("peagle", speculators("peagle", mask_token_id=9), None, {"mask_token_id": 9, "norm_before_residual": False}),
    "P-EAGLE, by tensors": ("peagle", head(ptd_token_id=7, draft_vocab_size=32), {**EAGLE3, "mask_hidden": [1, 1, 192]}, {"mask_token_id": 7}),
    "z-lab DFlash": (
        "dflash",
        head(architectures=["DFlashDraftModel"], model_type="qwen3", block_size=16, num_target_layers=36,
             dflash_config={"mask_token_id": 100, "target_layer_ids": [1, 17, 33]}),
        DFLASH,
        {"block_size": 16, "mask_token_id": 100, "aux_layer_ids": [2, 18, 34], "sample_from_anchor": False, "lm_head": "target"},
    ),
    "z-lab DFlash, block size inside": (
        "dflash", head(architectures=["DFlashDraftModel"], dflash_config={"block_size": 8, "mask_token_id": 1, "target_layer_ids": [1]}), None,
        {"block_size": 8},
    ),
    "speculators DFlash": (
        "dflash",
        speculators("dflash", block_size=8, aux_hidden_state_layer_ids=[2, 18, 33], mask_token_id=3, draft_vocab_size=32),
        None,
        {"aux_layer_ids": [2, 18, 33], "block_size": 8, "sample_from_anchor": False, "speculative_tokens": 5},
    ),
    "DFlash2": ("dflash2", {"architectures": ["DFlash2DraftModel"], "dflash_config": {"block_size": 8, "selector_rank": 4}}, None, {"selector_rank": 4}),
    "DFlash2, by tensors": (
        "dflash2", head(architectures=["DFlashDraftModel"]), {**DFLASH, **SELECTOR}, {},
    ),
    "speculators DFlash2": ("dflash2", speculators("dflash2", block_size=8), None, {"block_size": 8}),
    "DeepSpec DSpark": (
        "dspark",
        {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 256, "mask_token_id": 5, "target_layer_ids": [1, 9, 17]},
        None,
        {"sample_from_anchor": True, "block_size": 7, "markov_rank": 256, "aux_layer_ids": [2, 10, 18]},
    ),
    "DeepSpec DFlash, anchor first": ("dspark", {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 0}, None, {"sample_from_anchor": True}),
    "speculators DSpark, legacy": ("dspark", speculators("dspark", block_size=16, mask_token_id=1), None, {"sample_from_anchor": False}),
    "speculators DSpark": ("dspark", speculators("dspark", block_size=16, sample_from_anchor=True), None, {"sample_from_anchor": True}),
    "DSpark inside DeepSeek-V4": (
        "dspark",
        {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_nextn_predict_layers": 1, "dspark_block_size": 5,
         "dspark_noise_token_id": 11, "dspark_target_layer_ids": [30, 32, 34]},
        None,
        {"block_size": 5, "mask_token_id": 11, "aux_layer_ids": [31, 33, 35], "sample_from_anchor": True},
    ),
    "DSpark inside DeepSeek-V4.1 uses boundaries": (
        "dspark",
        {"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dspark_block_size": 5, "dspark_target_layer_ids": [30, 32]},
        None,
        {"aux_layer_ids": [30, 32]},
    ),
    "Model-Optimizer DSpark": (
        "dspark",
        {"architectures": ["DFlashDraftModel"], "dflash_config": {"projector_type": "dspark", "markov_rank": 8, "target_layer_ids": [1]}},
        None,
        {"markov_rank": 8},
    ),
    "XPress": ("xpress", {"architectures": ["Qwen3XPressModel"], "xpress_block_size": 8, "xpress_rank": 16}, None, {"block_size": 8}),
    "LiLiCorr": ("lilicorr", {"architectures": ["LiLiCorrDraftModel"], "dflash_config": {"block_size": 8, "lilicorr_candidate_topk": 4}}, None, {"selector_top_k": 4}),
    "Gemma 4 assistant": (
        "gemma4",
        {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 64, "text_config": {"hidden_size": 16}},
        {"pre_projection.weight": [16, 128], "post_projection.weight": [64, 16]},
        {"backbone_hidden_size": 64, "hidden_size": 16, "n_predict": 1, "model_type": "gemma4_mtp"},
    ),
    "MTP inside the target": (
        "mtp",
        {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 1, "num_hidden_layers": 61},
        None,
        {"n_predict": 1, "model_type": "deepseek_mtp"},
    ),
    "MTP inside Qwen3.5": ("mtp", {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 1}}, None, {"n_predict": 1}),
    "speculators MTP": ("mtp", speculators("mtp"), None, {"speculative_tokens": 5}),
    "Medusa of older vLLM": ("medusa", {"architectures": ["MedusaModel"], "model_type": "medusa", "num_heads": 5}, None, {"num_heads": 5}),
    "Medusa of FasterDecoding": ("medusa", {"base_model_name_or_path": "x", "medusa_num_heads": 4, "medusa_num_layers": 1}, None, {"num_heads": 4}),
    "Medusa, by tensors": ("medusa", {"hidden_size": 64}, {"0.0.linear.weight": [64, 64], "0.1.weight": [128, 64]}, {}),
    "MLP speculator": ("mlp_speculator", {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "n_predict": 3, "emb_dim": 64}, None, {"n_predict": 3}),
    "PARD": ("pard", head(num_hidden_layers=16, pard_token=120), None, {"mask_token_id": 120}),
    "plain causal LM": ("draft_model", head(num_hidden_layers=16), None, {"num_key_value_heads": 2}),
    "plain causal LM of one layer, by tensors": ("draft_model", head(), {"model.embed_tokens.weight": [128, 64], **layer("model.layers.0.")}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str) -> None:
    method, config, tensors, wanted = FORMATS[name]
    registry, checkpoint = builtin(), Checkpoint.from_parts(config, tensors)
    found = detect(registry, checkpoint)
    assert found.record == method and (found.evidence or found.fallback)
    target = Checkpoint.from_parts(TARGET, role="target")
    inspection = inspect_draft(registry.records[method], checkpoint, target, registry)
    assert {fact: inspection.facts[fact].value for fact in wanted} == wanted
    assert [d for d in inspection.diagnostics if d.severity == "error"] == []


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda p: p.stem)
def test_published_training_config(path: Path) -> None:
    registry, config = builtin(), json.loads(path.read_text())
    checkpoint = Checkpoint.from_parts(config)
    found = detect(registry, checkpoint)
    kind = next(k for k in ("peagle", "eagle3", "ealge3", "dflash", "dspark", "domino") if k in path.stem).replace(
        "ealge3", "eagle3"
    )
    if kind == "domino":
        assert found.record is None and found.known_not_implemented is not None
        assert found.known_not_implemented.name == "domino"
        return
    assert found.record == kind
    inspection = inspect_draft(registry.records[kind], checkpoint, None, registry)
    assert {d.code for d in inspection.diagnostics} <= {"aux-layers-defaulted"}
    assert inspection.facts["num_key_value_heads"].value == config.get(
        "num_key_value_heads", config["num_attention_heads"]
    )
    if "dflash_config" in config:
        assert inspection.facts["aux_layer_ids"].value == [i + 1 for i in config["dflash_config"]["target_layer_ids"]]
        assert inspection.facts["block_size"].value == config["block_size"]


@pytest.mark.parametrize("kind", ["hass", "mlp"])
def test_known_but_not_implemented(kind: str) -> None:
    found = detect(builtin(), Checkpoint.from_parts(speculators(kind)))
    assert found.record is None and found.known_not_implemented is not None


@pytest.mark.parametrize(
    ("config", "candidates"),
    [
        (head(), {"eagle", "eagle3", "draft_model"}),  # one layer, no tensors: a head or a very small model
        ({"architectures": ["TotallyNewHead"], "model_type": "totally_new"}, set()),
        ({}, set()),
        ({"architectures": "LlamaForCausalLM"}, set()),
    ],
)
def test_nothing_is_guessed(config: dict[str, Any], candidates: set[str]) -> None:
    found = detect(builtin(), Checkpoint.from_parts(config))
    assert found.record is None and set(found.candidates) == candidates


def test_two_independent_declarations_are_ambiguous() -> None:
    config = {"architectures": ["DFlashDraftModel"], "medusa_num_heads": 3}
    found = detect(builtin(), Checkpoint.from_parts(config))
    assert found.record is None and set(found.candidates) == {"dflash", "medusa"}


def test_a_speculators_target_names_its_method_and_an_mtp_target_does_not() -> None:
    registry = builtin()
    assert detect(registry, None, Checkpoint.from_parts(speculators("dflash"), role="target")).record == "dflash"
    mtp = Checkpoint.from_parts({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}, role="target")
    found = detect(registry, None, mtp)
    assert found.record is None and found.candidates == ("mtp",)


def test_the_location_decides_nothing(tmp_path: Path) -> None:
    registry = builtin()
    for name in ("eagle-distill", "my-eagle3", "dflash-b16", "dspark"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(head(num_hidden_layers=16)))
        from specdec.config.checkpoint import load_checkpoint

        checkpoint, _ = load_checkpoint(folder, role="draft")
        assert detect(registry, checkpoint).record == "draft_model"


def test_the_default_proposal_method_decides_k() -> None:
    config = speculators("eagle3")
    config["speculators_config"]["proposal_methods"].append({"proposal_type": "sample", "speculative_tokens": 7})
    config["speculators_config"]["default_proposal_method"] = "sample"
    registry = builtin()
    inspection = inspect_draft(registry.records["eagle3"], Checkpoint.from_parts(config), None, registry)
    assert inspection.facts["speculative_tokens"].value == 7
