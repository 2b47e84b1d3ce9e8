"""A DFlash network against a second writing of it, and what its rows may and may not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from block_checkpoints import DFLASH, HIDDEN, QWEN3, VOCAB, backbone, resolved, save, shared
from block_oracle import block_hidden
from block_run import Run

from specdec.drafts.block.network import BlockDraft

FULL, SLIDING = "full_attention", "sliding_attention"


def load(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> BlockDraft:
    save(folder, config, backbone(config) if tensors is None else tensors)
    return BlockDraft.load(resolved(folder, "dflash", 4), shared())


def variant(**changes: Any) -> dict[str, Any]:
    nested = {k: v for k, v in changes.items() if k in ("causal", "use_swa", "swa_window_size")}
    return (
        DFLASH
        | {k: v for k, v in changes.items() if k not in nested}
        | {"dflash_config": DFLASH["dflash_config"] | nested}
    )


# what the checkpoint says -> causal and window of each layer
SIGHTS = {
    "full": ({}, [False, False], [None, None]),
    "sliding is causal": ({"layer_types": [SLIDING, FULL], "sliding_window": 3}, [True, False], [3, None]),
    "stated bidirectional": (
        {"layer_types": [SLIDING] * 2, "sliding_window": 3, "is_causal": False},
        [False] * 2,
        [3, 3],
    ),
    "stated causal": ({"causal": True}, [True, True], [None, None]),
    "all slide": ({"use_swa": True, "swa_window_size": 6, "causal": False}, [False] * 2, [6, 6]),
    "window past the context": ({"layer_types": [SLIDING] * 2, "sliding_window": 30}, [True] * 2, [30, 30]),
}


@pytest.mark.parametrize("name", SIGHTS)
@pytest.mark.parametrize("chunks", [(), (1, 5, 3)])
def test_block_equals_a_second_writing(
    name: str, chunks: tuple[int, ...], tmp_path: Path, states: torch.Tensor
) -> None:
    changes, causal, windows = SIGHTS[name]
    config = variant(**changes)
    network = load(tmp_path, config)
    ours = Run(network, states, 11, 5, chunks).hidden()[0]
    embedded = shared().embed_tokens.weight[[11, 7, 7, 7, 7]]
    theirs = block_hidden(config, backbone(config), states, embedded, causal, windows)
    assert (ours - theirs).abs().max() < 2e-5


def test_context_passes_no_input_norm(tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path, DFLASH)
    before = Run(network, states, 11, 5)
    hidden = before.hidden()
    with torch.no_grad():
        for layer in network.layers:
            layer.input_layernorm.weight.mul_(1.5)
    after = Run(network, states, 11, 5)
    changed = after.hidden()
    for old, new in zip(before.cache.layers, after.cache.layers, strict=True):
        assert torch.equal(old.keys[:, :, :9], new.keys[:, :, :9])
        assert torch.equal(old.values[:, :, :9], new.values[:, :, :9])
    assert not torch.equal(before.cache.layers[0].values[:, :, 9:], after.cache.layers[0].values[:, :, 9:])
    assert not torch.allclose(hidden, changed)


@pytest.mark.parametrize(("causal", "reaches"), [(False, True), (True, False)])
def test_mask_rows_reach_the_rows_before_them_only_without_causality(
    causal: bool, reaches: bool, tmp_path: Path, states: torch.Tensor
) -> None:
    network = load(tmp_path, variant(causal=causal))
    first = Run(network, states, 11, 5).hidden()
    network.mask_embedding = torch.randn(HIDDEN)
    second = Run(network, states, 11, 5).hidden()
    assert torch.allclose(first[:, 0], second[:, 0]) is not reaches
    assert not torch.allclose(first[:, 1], second[:, 1])


def test_fill_in_drafts_from_the_mask_rows(tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path, DFLASH)
    hidden = Run(network, states, 11, 5).hidden()[0]
    drafts, rows, confidences = Run(network, states, 11, 5).greedy(4)
    logits = hidden[1:] @ shared().lm_head.weight.T
    assert drafts == logits.argmax(-1).tolist()
    assert torch.allclose(torch.stack(rows), logits, atol=1e-5)
    assert confidences == [None] * 4


def test_stored_factors_apply(tmp_path: Path, states: torch.Tensor) -> None:
    config = DFLASH | {"logit_scale": 0.5, "final_logit_softcapping": 3.0}
    config["dflash_config"] = DFLASH["dflash_config"] | {"input_embedding_scale": 2.0, "attention_value_scale": 0.25}
    tensors = backbone(config)
    scaled = tensors | {name: t * 0.25 for name, t in tensors.items() if "v_proj" in name}
    embedded = 2 * shared().embed_tokens.weight[[11, 7, 7, 7, 7]]
    theirs = block_hidden(config, scaled, states, embedded, [False] * 2, [None] * 2)
    network = load(tmp_path, config)
    assert (Run(network, states, 11, 5).hidden()[0] - theirs).abs().max() < 2e-5
    logits = (theirs.float() @ shared().lm_head.weight.T) * 0.5
    rows = Run(network, states, 11, 5).greedy(4)[1]
    assert torch.allclose(torch.stack(rows), 3 * torch.tanh(logits[1:] / 3), atol=1e-4)


def test_sinks_take_their_share_of_the_attention(tmp_path: Path, states: torch.Tensor) -> None:
    config = variant() | {"add_swa_attention_sink_bias": True}
    tensors = backbone(config)
    for i in range(2):
        tensors[f"layers.{i}.self_attn.attention_sink_bias"] = torch.full((4,), -1e4)
    none = load(tmp_path / "none", config, dict(tensors))
    plain = load(tmp_path / "plain", DFLASH)
    assert torch.allclose(Run(none, states, 3, 5).hidden(), Run(plain, states, 3, 5).hidden(), atol=1e-6)
    for i in range(2):
        tensors[f"layers.{i}.self_attn.attention_sink_bias"] = torch.full((4,), 1e4)
    everything = load(tmp_path / "all", config, dict(tensors))
    with torch.no_grad():  # attention adds nothing when the sinks take all of it
        for layer in plain.layers:
            layer.self_attn.o_proj.weight.zero_()
    assert torch.allclose(Run(everything, states, 3, 5).hidden(), Run(plain, states, 3, 5).hidden(), atol=1e-6)


def test_speculators_format_with_a_reduced_vocabulary_equals_the_native_one(
    tmp_path: Path, states: torch.Tensor
) -> None:
    kept = torch.tensor([1, 4, 7, 11, 12, 30, 31, 50, 63])
    native = load(tmp_path / "native", DFLASH)
    config = {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "transformer_layer_config": QWEN3,
        "draft_vocab_size": len(kept),
        "block_size": 5,
        "mask_token_id": 7,
        "aux_hidden_state_layer_ids": [1, 3],
        "speculators_config": {
            "algorithm": "dflash",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
            "verifier": {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]},
        },
    }
    tensors = backbone(QWEN3) | {
        "embed_tokens.weight": shared().embed_tokens.weight,
        "lm_head.weight": shared().lm_head.weight[kept],
        "d2t": kept - torch.arange(len(kept)),
        "t2d": torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, kept, True),
    }
    save(tmp_path / "own", config, tensors)
    reduced = BlockDraft.load(resolved(tmp_path / "own"), shared())
    assert reduced.to_target is not None and reduced.to_target.tolist() == kept.tolist()
    rows = Run(native, states, 11, 5).greedy(4)[1]
    drafts, ours, _ = Run(reduced, states, 11, 5).greedy(4)
    assert torch.allclose(torch.stack(rows)[:, kept], torch.stack(ours), atol=1e-5)
    assert drafts == [int(kept[row[kept].argmax()]) for row in rows]


@pytest.mark.parametrize(
    ("types", "said", "causal"),
    [
        ([SLIDING, FULL], {}, [False, False]),  # legacy: nobody said it
        ([SLIDING, FULL], {"sliding_window_non_causal": False}, [True, False]),
        ([SLIDING, FULL], {"sliding_window_non_causal": True}, [False, False]),
    ],
)
def test_speculators_format_says_whether_sliding_layers_are_causal(
    types: list[str], said: dict[str, bool], causal: list[bool], tmp_path: Path
) -> None:
    config = {
        "architectures": ["DFlashDraftModel"],
        "speculators_model_type": "dflash",
        "transformer_layer_config": QWEN3 | {"layer_types": types, "sliding_window": 3},
        "block_size": 5,
        "mask_token_id": 7,
        "aux_hidden_state_layer_ids": [1, 3],
        **said,
    }
    network = load(tmp_path, config, backbone(QWEN3))
    assert [sight.causal for sight in network.sights] == causal
    assert [sight.window for sight in network.sights] == [3 if kind == SLIDING else None for kind in types]


def test_muse_glimmer_spelling_is_the_same_network(tmp_path: Path, states: torch.Tensor) -> None:
    tensors = backbone(DFLASH)
    spelt = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    other = load(tmp_path / "muse", DFLASH, {f"model.{spelt.get(n, n)}": t for n, t in tensors.items()})
    native = load(tmp_path / "native", DFLASH)
    assert torch.equal(Run(other, states, 3, 5).hidden(), Run(native, states, 3, 5).hidden())
