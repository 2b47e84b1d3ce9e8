"""Checkpoints that do not fit are refused by name, never read in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from block_checkpoints import DFLASH, DSPARK, HIDDEN, TARGET, backbone, markov, resolved, save, shared
from block_run import Run
from safetensors.torch import save_file

import specdec
from specdec.drafts.block.dspark import DSparkDraft
from specdec.drafts.block.network import BlockDraft
from specdec.drafts.errors import DraftError

Tensors = dict[str, torch.Tensor]


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


def plus(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.zeros(*shape)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("layers.1.self_attn.k_norm.weight"), "k_norm"),
        (without("hidden_norm.weight"), "hidden_norm.weight"),
        (plus("layers.0.attention_conv.base_kernel", 2, 2, HIDDEN), "attention_conv"),
        (plus("candidate_selector.predecessor_codebook", 64, 4), "candidate_selector"),
        (plus("layers.2.input_layernorm.weight", HIDDEN), "layers.2"),
        (plus("mask_hidden", HIDDEN), "peagle"),
        (plus("layers.0.mlp.up_proj.weight", 47, HIDDEN), "up_proj"),
        (plus("lm_head.weight", 9, HIDDEN), "no d2t"),
        (plus("mask_embedding", 5), "mask_embedding"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: Callable[[Tensors], Tensors], words: str, tmp_path: Path) -> None:
    config = resolved(save(tmp_path / "right", DFLASH, backbone(DFLASH)), "dflash", 4)
    save(tmp_path / "right", DFLASH, change(backbone(DFLASH)))
    with pytest.raises(DraftError, match=words):
        BlockDraft.load(config, shared())


@pytest.mark.parametrize(("drop", "words"), [("rope_theta", "rope_theta"), ("hidden_size", "hidden_size")])
def test_facts_that_are_missing_are_named(drop: str, words: str, tmp_path: Path) -> None:
    config = {name: value for name, value in DFLASH.items() if name != drop}
    folder = save(tmp_path, config, backbone(DFLASH))
    with pytest.raises(DraftError, match=words):
        BlockDraft.load(resolved(folder, "dflash", 4), shared())


@pytest.mark.parametrize("at", ["rope_parameters", "rope_scaling"])
def test_theta_is_read_where_it_is_nested(at: str, tmp_path: Path, states: torch.Tensor) -> None:
    flat = BlockDraft.load(resolved(save(tmp_path / "flat", DFLASH, backbone(DFLASH)), "dflash", 4), shared())
    theta = DFLASH["rope_theta"]
    nested: dict[str, Any] = {"rope_parameters": {"rope_theta": theta, "rope_type": "default"}}
    if at == "rope_scaling":
        nested = {"rope_scaling": {"rope_type": "default"}, "rope_theta": theta}
    config = {k: v for k, v in DFLASH.items() if k != "rope_theta"} | nested
    other = BlockDraft.load(resolved(save(tmp_path / "nested", config, backbone(DFLASH)), "dflash", 4), shared())
    assert torch.equal(Run(flat, states, 3, 5).hidden(), Run(other, states, 3, 5).hidden())


def test_a_sliding_layer_needs_a_width(tmp_path: Path) -> None:
    config = DFLASH | {"layer_types": ["sliding_attention", "full_attention"]}
    folder = save(tmp_path, config, backbone(DFLASH))
    with pytest.raises(DraftError, match="swa_window_size"):
        BlockDraft.load(resolved(folder, "dflash", 4), shared())


@pytest.mark.parametrize("with_token", [False, True])
def test_mask_embedding_replaces_the_table(with_token: bool, tmp_path: Path, states: torch.Tensor) -> None:
    vector = torch.randn(HIDDEN)
    nested = {"target_layer_ids": [0, 2]} if with_token else DFLASH["dflash_config"]
    folder = save(tmp_path, DFLASH | {"dflash_config": nested}, backbone(DFLASH))
    plain = DFLASH["dflash_config"]["mask_token_id"]
    extra = {"mask_embedding": vector} | ({"mask_token_id": torch.tensor(plain)} if with_token else {})
    save_file(extra, folder / "mask_embedding.safetensors")
    config = resolved(folder, "dflash", 4)
    network = BlockDraft.load(config, shared())
    assert network.mask_token_id == plain
    target = shared()
    with torch.no_grad():
        target.embed_tokens.weight[plain] = vector
    (folder / "mask_embedding.safetensors").unlink()
    if with_token:
        with pytest.raises(DraftError, match="mask_token_id"):
            BlockDraft.load(config, target)
    else:
        table = BlockDraft.load(config, target)
        assert torch.equal(Run(network, states, 3, 5).hidden(), Run(table, states, 3, 5).hidden())


def test_a_pickled_mask_embedding_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    folder = save(tmp_path, DFLASH, backbone(DFLASH))
    torch.save({"embedding": torch.randn(HIDDEN), "mask_token_id": 7}, folder / "mask_embedding.pt")
    config = resolved(folder, "dflash", 4)
    with pytest.raises(DraftError, match="convert it with") as refused:
        BlockDraft.load(config, shared())
    code = str(refused.value).split('-c "')[1].rsplit('"', 1)[0]
    exec(code, {})
    (folder / "mask_embedding.pt").unlink()
    assert BlockDraft.load(config, shared()).mask_embedding is not None


def test_markov_tensors_follow_the_config(tmp_path: Path) -> None:
    folder = save(tmp_path, DSPARK, backbone(DSPARK) | markov(DSPARK))
    config = resolved(folder)
    save(folder, DSPARK, backbone(DSPARK) | {n: t for n, t in markov(DSPARK).items() if "confidence" not in n})
    with pytest.raises(DraftError, match=r"confidence_head\.proj"):
        DSparkDraft.load(config, shared())


LAYOUTS = [
    (DFLASH, {}, "dflash", False, "note"),
    (DFLASH, {"sample_from_anchor": False}, "dflash", False, None),
    (DFLASH, {"dflash_config": DFLASH["dflash_config"] | {"shift_label": True}}, "dflash", None, "error"),
    (DSPARK, {}, "dspark", True, "note"),
    (DSPARK, {"markov_rank": 0, "enable_confidence_head": False}, "dspark", True, "note"),
    (DSPARK, {"sample_from_anchor": False}, "dspark", False, None),
    (DSPARK, {"dflash_config": {"shift_label": False}}, "dspark", None, "error"),
    (DSPARK, {"dflash_config": {"shift_label": True}}, "dspark", True, None),
]


@pytest.mark.parametrize(("base", "said", "method", "anchor_first", "finding"), LAYOUTS)
def test_the_layout_is_decided_or_refused(
    base: dict[str, Any], said: dict[str, Any], method: str, anchor_first: bool | None, finding: str | None
) -> None:
    result = specdec.resolve(
        {"target": {"model": "tiny"}, "speculative": {"model": "draft", "num_speculative_tokens": 3}},
        target_config=TARGET,
        draft_config={**base, **said},
    )
    found = [d.severity for d in result.diagnostics if d.code == "block-layout"]
    assert found == ([] if finding is None else [finding])
    if anchor_first is None:
        assert result.config is None
        return
    assert result.config is not None and result.config.method == method
    assert result.config.draft.sample_from_anchor is anchor_first
    assert result.config.numbers.draft_query_rows == (3 if anchor_first else 4)
