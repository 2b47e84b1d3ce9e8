"""Numbers that only tensor names tell."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.config.checkpoint import Checkpoint, detect, inspect_draft
from specdec.config.records.registry import builtin

MTP = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 2,
}


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        (["model.layers.0.x", "model.layers.1.x"], False),
        (["model.layers.0.x", "model.layers.1.x", "model.layers.2.eh_proj.weight"], True),
        (["model.layers.0.x", "mtp.fc.weight"], True),
        (["model.layers.0.x", "model.layers.2.mlp.up_proj.weight"], True),
        (["lm_head.weight"], True),  # not a whole listing: nothing can be said
    ],
)
def test_the_modules_that_the_config_counts_are_stored(names: list[str], complete: bool) -> None:
    registry, target = builtin(), Checkpoint.from_parts(MTP, {name: [1] for name in names}, role="target")
    errors = [
        d for d in inspect_draft(registry.records["mtp"], target, target, registry).diagnostics if d.severity == "error"
    ]
    if complete:
        assert errors == []
    else:
        assert [(d.code, d.path) for d in errors] == [
            ("checkpoint-config-vs-weights", "draft.num_nextn_predict_layers")
        ]


def test_mtp_is_recognised_by_its_tensors() -> None:
    config = {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 2}
    tensors = {"model.layers.0.x": [1], "mtp.fc.weight": [64, 128]}
    assert detect(builtin(), Checkpoint.from_parts(config, tensors)).record == "mtp"
    assert detect(builtin(), Checkpoint.from_parts(config, {"model.layers.0.x": [1]})).record == "draft_model"


def heads(count: int, style: str) -> dict[str, list[int]]:
    return {style.format(i): [64, 64] for i in range(count)}


@pytest.mark.parametrize(
    "style", ["{}.0.linear.weight", "blocks.{}.layers.0.weight", "medusa_heads.blocks.{}.layers.0.weight"]
)
def test_medusa_heads_are_counted(style: str) -> None:
    registry = builtin()

    def inspected(config: dict[str, Any]) -> Any:
        checkpoint = Checkpoint.from_parts({"model_type": "medusa", **config}, heads(5, style))
        return inspect_draft(registry.records["medusa"], checkpoint, None, registry)

    assert inspected({}).facts["num_heads"].value == 5
    assert inspected({"num_heads": 5}).diagnostics == []
    finding = inspected({"medusa_num_heads": 2}).diagnostics[0]
    assert (finding.code, finding.path) == ("checkpoint-config-vs-weights", "draft.medusa_num_heads")
    assert "2" in finding.message and "5" in finding.message
