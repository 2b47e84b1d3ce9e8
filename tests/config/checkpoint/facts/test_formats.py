"""Every public checkpoint format is recognised from its config.json and tensor names, without a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec.config.checkpoint import Checkpoint, detect, inspect_draft
from specdec.config.records.registry import builtin

CONFIGS = Path(__file__).parents[3] / "fixtures" / "draft_configs"
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
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        **more,
    }


FORMATS = yaml.safe_load(Path(__file__).with_name("formats.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", FORMATS, ids=[case["name"] for case in FORMATS])
def test_format(case: dict[str, Any]) -> None:
    registry, checkpoint = builtin(), Checkpoint.from_parts(case["config"], case.get("tensors"))
    found = detect(registry, checkpoint)
    assert found.record == case["record"] and (found.evidence or found.fallback)
    target = Checkpoint.from_parts(TARGET, role="target")
    inspection = inspect_draft(registry.records[case["record"]], checkpoint, target, registry)
    wanted = case.get("facts", {})
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
