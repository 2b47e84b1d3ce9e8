"""What users hit, decided from config.json and tensor names: one right finding each, and their neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec.config.checkpoint import (
    Checkpoint,
    Inspection,
    check_target,
    cross_check,
    inspect_draft,
    read_target_facts,
)
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.records.registry import builtin

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "vocab_size": 128}
EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 32,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 6],
}
DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3]},
}


def findings(
    method: str,
    draft: dict[str, Any],
    target: dict[str, Any] | None = None,
    tensors: dict[str, list[int]] | None = None,
) -> list[Diagnostic]:
    registry = builtin()
    other = None if target is None else Checkpoint.from_parts(target, role="target")
    return cross_check(registry.records[method], Checkpoint.from_parts(draft, tensors), other, registry)


def inspected(
    method: str, draft: dict[str, Any], target: dict[str, Any], tensors: dict[str, list[int]] | None = None
) -> Inspection:
    registry = builtin()
    other = Checkpoint.from_parts(target, role="target")
    return inspect_draft(registry.records[method], Checkpoint.from_parts(draft, tensors), other, registry)


CASES = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_error(case: dict[str, Any]) -> None:
    found = findings(case["method"], case["draft"], case.get("target", {}), case.get("tensors"))
    errors, wanted = [d for d in found if d.severity == "error"], case["error"]
    assert [(d.code, d.path) for d in errors] == ([(wanted["code"], wanted["at"])] if wanted else [])
    for error in errors:
        assert all(word in error.message for word in wanted["says"]), error.message
        assert error.fix or error.code == "draft-not-implemented"


WARNINGS: list[tuple[str, str, dict[str, Any], dict[str, Any], tuple[str, str, list[str]]]] = [
    (
        "R45 guessed layers",
        "eagle3",
        {"draft_vocab_size": 32},
        {"num_hidden_layers": 80},
        (
            "aux-layers-defaulted",
            "draft.eagle_aux_hidden_state_layer_ids",
            ["2", "40", "77", "eagle_aux_hidden_state_layer_ids"],
        ),
    ),
    (
        "R8 the target's layer count",
        "eagle3",
        {**EAGLE3, "num_hidden_layers": 40},
        {},
        ("head-layer-count-unusual", "draft.num_hidden_layers", ["40"]),
    ),
    (
        "R41 dropped rope scaling",
        "eagle3",
        {**EAGLE3, "rope_theta": 5e5},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        ("rope-differs", "draft.rope_scaling", ["llama3"]),
    ),
    (
        "R41 another base",
        "eagle3",
        {**EAGLE3, "rope_theta": 1e4},
        {"rope_theta": 5e5},
        ("rope-differs", "draft.rope_theta", ["10000", "500000"]),
    ),
    (
        "a factor without a type",
        "eagle3",
        {**EAGLE3, "rope_scaling": {"factor": 2.0}},
        {},
        ("rope-type-missing", "draft.rope_scaling", ["factor"]),
    ),
    (
        "R50 a new flag",
        "eagle3",
        {"speculators_model_type": "eagle3", "norm_new_thing": True},
        {},
        ("unknown-checkpoint-field", "draft.norm_new_thing", ["norm_new_thing"]),
    ),
    (
        "R50 a new flag inside",
        "dflash",
        {**DFLASH, "dflash_config": {"new_gate": True}},
        {},
        ("unknown-checkpoint-field", "draft.dflash_config.new_gate", ["new_gate"]),
    ),
]


@pytest.mark.parametrize(("name", "method", "draft", "target", "wanted"), WARNINGS, ids=[w[0] for w in WARNINGS])
def test_warning(name: str, method: str, draft: Any, target: Any, wanted: tuple[str, str, list[str]]) -> None:
    code, path, words = wanted
    found = [d for d in findings(method, draft, target) if d.code == code]
    assert [(d.severity, d.path) for d in found] == [("warning", path)]
    assert all(word in found[0].message for word in words)


def test_plain_rope_is_read_by_value_and_not_warned_about() -> None:
    draft = {"model_type": "deepseek_v3", "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
    inspection = inspected("eagle3", draft, {"rope_theta": 10000.0})
    assert inspection.facts["rope_type"].value == "default"
    assert "rope-differs" not in {d.code for d in inspection.diagnostics}


@pytest.mark.parametrize(
    ("draft", "layers", "ids", "rule"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}, 6, [1, 3, 5], "boundary"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 5, 6]}}, 6, [4, 5, 6], "layer count"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 33]}}, 36, [2, 18, 34], "first id is 1"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}, 61, [2, 30, 58], "not 1"),
    ],
)
def test_aux_layers_in_one_convention(draft: dict[str, Any], layers: int, ids: list[int], rule: str) -> None:
    found = inspected("eagle3", draft, {"num_hidden_layers": layers}).facts["aux_layer_ids"]
    assert found.value == ids and rule in found.origin.inputs[0] and found.origin.kind == "checkpoint"


def test_both_spellings_of_dflash_layers_agree() -> None:
    target = {"num_hidden_layers": 6}
    native = inspected("dflash", {"dflash_config": {"target_layer_ids": [1, 3, 4]}}, target).facts["aux_layer_ids"]
    library = inspected("dflash", {"speculators_model_type": "dflash", "aux_hidden_state_layer_ids": [2, 4, 5]}, target)
    assert native.value == library.facts["aux_layer_ids"].value == [2, 4, 5]


def test_the_users_layers_answer_for_the_draft() -> None:
    registry = builtin()
    draft = Checkpoint.from_parts({"draft_vocab_size": 64, "vocab_size": 64}, {"fc.weight": [64, 320]})
    target = Checkpoint.from_parts({"hidden_size": 64, "num_hidden_layers": 36, "vocab_size": 64}, role="target")
    silent = inspect_draft(registry.records["eagle3"], draft, target, registry)
    assert {d.code for d in silent.diagnostics} == {"aux-layers-defaulted", "checkpoint-config-vs-weights"}
    chosen = inspect_draft(registry.records["eagle3"], draft, target, registry, chosen_layers=[2, 10, 18, 26, 34])
    assert chosen.diagnostics == []


def test_rope_layout_follows_the_target() -> None:
    found = inspected("eagle3", EAGLE3, {"model_type": "llama4_text"}).facts["rope_interleaved"]
    assert found.value is True and (found.origin.kind, found.origin.detail) == ("target", "model_type")
    assert inspected("eagle3", EAGLE3, {"model_type": "llama"}).facts["rope_interleaved"].value is False
    own = inspected("eagle3", {**EAGLE3, "is_neox_style": True}, {"model_type": "llama4_text"}).facts[
        "rope_interleaved"
    ]
    assert own.value is False and own.origin.kind == "checkpoint"


def test_short_maps_are_shown_as_target_ids() -> None:
    draft = {**EAGLE3, "draft_vocab_size": 4, "d2t": [0, 1, 3, 3]}
    assert inspected("eagle3", draft, {"vocab_size": 8}).facts["draft_to_target"].value == [0, 2, 5, 6]


def test_own_weights_are_used() -> None:
    facts = inspected("eagle3", EAGLE3, {}, {"lm_head.weight": [32, 64], "model.embed_tokens.weight": [128, 64]}).facts
    assert (facts["lm_head"].value, facts["lm_head"].origin.detail) == ("draft", "lm_head.weight")
    assert facts["embed_tokens"].value == "draft"
    shared = inspected(
        "eagle3", {**EAGLE3, "draft_vocab_size": 128}, {"vocab_size": 128}, {"fc.weight": [64, 192]}
    ).facts
    assert (shared["lm_head"].value, shared["lm_head"].origin.kind) == ("target", "target")
    assert "lm_head" not in inspected("eagle3", EAGLE3, {}).facts


def test_quantization_is_the_drafts_own() -> None:
    facts = inspected("eagle3", EAGLE3, {"quantization_config": {"quant_method": "awq"}}).facts
    assert "quant_method" not in facts
    own = inspected("eagle3", {**EAGLE3, "quantization_config": {"quant_method": "fp8"}}, {}).facts["quant_method"]
    assert own.value == "fp8" and own.origin.detail == "quantization_config.quant_method"


def test_tokenizers_are_compared_where_the_draft_has_its_own() -> None:
    facts = inspected(
        "draft_model", {"vocab_size": 3, "tokens": ["a", "x", "c"]}, {"vocab_size": 3, "tokens": ["a", "b", "c"]}
    ).facts
    assert facts["tokenizer"].value == "different" and facts["tokenizer_first_difference"].value == 1
    assert (facts["tokenizer_draft_token"].value, facts["tokenizer_target_token"].value) == ("x", "b")
    assert inspected("draft_model", {"vocab_size": 3}, {"vocab_size": 3}).facts["tokenizer"].value == "unknown"


def test_a_target_against_its_own_tensors() -> None:
    target = Checkpoint.from_parts({"vocab_size": 152}, {"model.embed_tokens.weight": [144, 64]}, role="target")
    facts, wrong = read_target_facts(target, builtin())
    assert not wrong
    assert [(d.code, d.path) for d in check_target(target, facts)] == [
        ("checkpoint-config-vs-weights", "target.vocab_size")
    ]


def test_a_draft_inside_the_target_is_not_checked_against_itself() -> None:
    registry = builtin()
    config = {"model_type": "deepseek_v4", "dspark_block_size": 5, "num_hidden_layers": 4}
    target = Checkpoint.from_parts(config, {"model.layers.0.x": [1]}, role="target")
    inspection = inspect_draft(registry.records["dspark"], target, target, registry)
    assert [d for d in inspection.diagnostics if d.severity == "error"] == []


def test_a_rewrite_is_no_disagreement() -> None:
    draft = {"model_type": "qwen4_exp", "text_config": {"mtp_num_hidden_layers": 3}}
    inspection = inspected("mtp", draft, {})
    assert inspection.facts["n_predict"].value == 3 and inspection.diagnostics == []


def test_one_wrong_value_is_one_finding() -> None:
    draft = {"speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": "2,4,6"}
    errors = [d for d in inspected("eagle3", draft, {}).diagnostics if d.severity == "error"]
    assert [(d.code, d.path) for d in errors] == [("wrong-type", "draft.eagle_aux_hidden_state_layer_ids")]
