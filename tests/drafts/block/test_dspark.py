"""DSpark's sequential heads against a second writing, formats, truncation, and the trained drafter's golden vectors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from block_checkpoints import DSPARK, HIDDEN, QWEN3, VOCAB, backbone, markov, resolved, save, shared
from block_oracle import block_hidden, markov_chain
from block_run import Run
from safetensors.torch import load_file

import specdec
from specdec.drafts.block.dspark import DSparkDraft
from specdec.drafts.block.markov import MarkovWalk
from specdec.errors import EngineError
from specdec.model.target import load_target

KINDS = ("vanilla", "gated", "rnn")


def load(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], **options: Any) -> DSparkDraft:
    return DSparkDraft.load(resolved(save(folder, config, tensors), **options), shared())


@pytest.mark.parametrize("kind", KINDS)
def test_head_equals_a_second_writing(kind: str, tmp_path: Path, states: torch.Tensor) -> None:
    config = DSPARK | {"markov_head_type": kind}
    tensors = backbone(config) | markov(config)
    network = load(tmp_path, config, tensors)
    assert network.anchor_first
    hidden = block_hidden(config, tensors, states, shared().embed_tokens.weight[[11, 7, 7, 7]], [False] * 2, [None] * 2)
    base = hidden @ shared().lm_head.weight.double().T
    drafts, rows, confidences = markov_chain(config, tensors, hidden, base, 11, range(VOCAB))
    ours = Run(network, states, 11, 4).greedy(4)
    assert ours[0] == drafts
    assert (torch.stack(ours[1]) - torch.stack(rows)).abs().max() < 1e-3
    assert ours[2] == pytest.approx(confidences, abs=1e-4)


def test_legacy_speculators_format_fills_in_with_a_reduced_vocabulary(tmp_path: Path, states: torch.Tensor) -> None:
    kept = [2, 5, 7, 11, 20, 21, 40, 41, 60, 63]
    tensors = backbone(QWEN3) | markov(DSPARK, rows=len(kept))
    tensors |= {"lm_head.weight": shared().lm_head.weight[kept], "d2t": torch.tensor(kept) - torch.arange(len(kept))}
    config = {
        "architectures": ["DSparkDraftModel"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": QWEN3,
        "draft_vocab_size": len(kept),
        "block_size": 5,
        "mask_token_id": 7,
        "aux_hidden_state_layer_ids": [1, 3],
        **{name: DSPARK[name] for name in DSPARK if "markov" in name or "confidence" in name},
    }
    network = load(tmp_path, config, tensors, k=4)
    assert not network.anchor_first and network.block_rows(4) == 5
    embedded = shared().embed_tokens.weight[[11, 7, 7, 7, 7]]
    hidden = block_hidden(QWEN3, tensors, states, embedded, [False] * 2, [None] * 2)[1:]
    base = hidden @ tensors["lm_head.weight"].double().T
    drafts, _, confidences = markov_chain(config, tensors, hidden, base, 11, kept)
    ours = Run(network, states, 11, 5).greedy(4)
    assert ours[0] == drafts
    assert ours[2] == pytest.approx(confidences, abs=1e-4)


def test_rank_0_is_dflash_from_the_anchor(tmp_path: Path, states: torch.Tensor) -> None:
    config = DSPARK | {"markov_rank": 0, "enable_confidence_head": False}
    network = load(tmp_path, config, backbone(config))
    hidden = Run(network, states, 11, 4).hidden()[0]
    drafts, _, confidences = Run(network, states, 11, 4).greedy(4)
    assert drafts == (hidden @ shared().lm_head.weight.T).argmax(-1).tolist()
    assert confidences == [None] * 4


def test_model_optimizer_spelling_is_the_same_network(tmp_path: Path, states: torch.Tensor) -> None:
    tensors = backbone(DSPARK) | markov(DSPARK)
    spelt = {n: n.replace("markov_head.", "").replace("confidence_head.proj", "confidence_proj") for n in tensors}
    heads = {name: DSPARK[name] for name in DSPARK if "markov" in name or "confidence" in name}
    nested = {"mask_token_id": 7, "target_layer_ids": [0, 2], "projector_type": "dspark", "shift_label": True, **heads}
    config = QWEN3 | {"architectures": ["DFlashDraftModel"], "block_size": 4, "dflash_config": nested}
    other = load(tmp_path / "other", config, {spelt[n]: t for n, t in tensors.items()})
    native = load(tmp_path / "native", DSPARK, tensors)
    assert Run(other, states, 3, 4).greedy(4)[0] == Run(native, states, 3, 4).greedy(4)[0]


@pytest.mark.parametrize("best", [1, 3, VOCAB])
def test_bias_is_added_to_the_best_tokens_only(best: int, tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path, DSPARK, backbone(DSPARK) | markov(DSPARK), dspark_draft_topk=best)
    full = load(tmp_path, DSPARK, backbone(DSPARK) | markov(DSPARK))
    hidden, anchors = Run(network, states, 11, 4).hidden(), torch.tensor([11])
    cut, dense = (n.walk(hidden, anchors, hidden[:, 0], 4) for n in (network, full))
    scores, ids = cut.row(0, anchors, torch.zeros(1, dtype=torch.long))
    all_scores, _ = dense.row(0, anchors, torch.zeros(1, dtype=torch.long))
    base = full.head(hidden)[0, 0]
    if best == VOCAB:
        assert ids is None and torch.equal(scores, all_scores)
        return
    assert ids is not None and ids[0].tolist() == base.topk(best).indices.tolist()
    assert torch.allclose(scores[0], all_scores[0, ids[0]], atol=1e-5)


def test_calibration_divides_the_score_of_each_row(tmp_path: Path, states: torch.Tensor) -> None:
    tensors = backbone(DSPARK) | markov(DSPARK)
    raw = Run(load(tmp_path / "raw", DSPARK, tensors), states, 11, 4).greedy(4)[2]
    temperatures = torch.tensor([2.0, 1.0, 0.5, 4.0])
    calibrated = load(tmp_path / "cal", DSPARK, tensors | {"confidence_head.sts_temperatures": temperatures})
    expected = torch.sigmoid(torch.logit(torch.tensor(raw, dtype=torch.float64)) / temperatures).tolist()
    assert Run(calibrated, states, 11, 4).greedy(4)[2] == pytest.approx(expected, abs=1e-5)


def test_confidence_depends_on_the_tokens_before_a_draft_only(tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path, DSPARK, backbone(DSPARK) | markov(DSPARK))
    hidden = Run(network, states, 11, 4).hidden()
    walk = network.walk(hidden, torch.tensor([11]), hidden[:, 0], 4)
    assert isinstance(walk, MarkovWalk)
    first = walk.confidence(1, torch.tensor([5]))
    walk.row(1, torch.tensor([5]), torch.zeros(1, dtype=torch.long))
    assert torch.equal(first, walk.confidence(1, torch.tensor([5])))
    assert not torch.equal(first, walk.confidence(1, torch.tensor([6])))


def test_gemma_4_layers_equal_transformers(tmp_path: Path, states: torch.Tensor) -> None:
    """Sandwich norms, unit attention scale, values that are normed raw keys, partial rotation, and a layer scalar."""
    from transformers.models.gemma4 import modeling_gemma4 as gemma
    from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig

    sizes = {k: v for k, v in QWEN3.items() if k not in ("model_type", "rope_theta", "layer_types", "head_dim")}
    rotation = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 5000.0}
    config = sizes | {
        "architectures": ["Gemma4DSparkModel"],
        "model_type": "gemma4_text",
        "num_hidden_layers": 1,
        "head_dim": 4,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "layer_types": ["full_attention"],
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "full_attention": rotation,
            "sliding_attention": {"rope_type": "default", "rope_theta": 77.0},
        },
        "block_size": 4,
        "mask_token_id": 7,
        "target_layer_ids": [0, 2],
        "markov_rank": 0,
        "final_logit_softcapping": 30.0,
    }
    theirs = gemma.Gemma4TextDecoderLayer(
        Gemma4TextConfig(**config, hidden_size_per_layer_input=0, enable_moe_block=False, _attn_implementation="eager"),
        0,
    ).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in [*theirs.parameters(), theirs.layer_scalar]:
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3 + (p.ndim == 1))
    tensors = {f"layers.0.{n}": t.clone() for n, t in theirs.state_dict().items()}
    tensors |= {n: t for n, t in backbone(DSPARK).items() if not n.startswith("layers.")}
    tensors |= {"embed_tokens.weight": shared().embed_tokens.weight, "lm_head.weight": shared().lm_head.weight}
    network = load(tmp_path, config, tensors)
    run = Run(network, states, 11, 4)
    ours = run.hidden()[0]
    # the layer of transformers over [features; embeddings]: only its context rows pass an input norm, so that is undone
    attention = theirs.self_attn
    with torch.inference_mode():
        x = shared().embed_tokens.weight[[11, 7, 7, 7]] * HIDDEN**0.5
        joined = torch.cat((network.features(states), theirs.input_layernorm(x)))[None]
        positions = torch.arange(13)[None]
        rotary = gemma.Gemma4TextRotaryEmbedding(theirs.config)(joined, positions, layer_type="full_attention")
        seen = torch.zeros(1, 1, 13, 13)
        mixed = attention(joined, position_embeddings=rotary, attention_mask=seen, shared_kv_states={})[0][0, 9:]
        x = x + theirs.post_attention_layernorm(mixed)
        x = x + theirs.post_feedforward_layernorm(theirs.mlp(theirs.pre_feedforward_layernorm(x)))
        expected = network.norm(x * theirs.layer_scalar)
    assert torch.allclose(ours, expected, atol=1e-4)


def drafters() -> Path | None:
    """The folder of trained drafters, where this machine has one."""
    named = os.environ.get("SPECDEC_DRAFTERS")
    folders = [Path(named)] if named else [Path(__file__).parents[4] / "shared/data/drafters"]
    return next((f for f in folders if (f / "smollm2-135m-dspark/config.json").is_file()), None)


@pytest.mark.skipif(drafters() is None, reason="the trained drafter is not here; name its folder in SPECDEC_DRAFTERS")
def test_trained_drafter_reproduces_its_golden_vectors() -> None:
    folder = drafters()
    assert folder is not None
    folder = folder / "smollm2-135m-dspark"
    model = "SmolLM2-135M-Instruct"
    try:
        target = load_target(model, dtype=torch.float32, device=torch.device("cpu"))
    except EngineError:
        pytest.skip("the target of the trained drafter is not here")
    table = shared()
    # the vectors were made with a target that had been rounded to bfloat16
    table.embed_tokens.weight = torch.nn.Parameter(
        target.model.get_input_embeddings().weight.detach().bfloat16().float(), requires_grad=False
    )
    table.vocab_size = len(table.embed_tokens.weight)
    config = specdec.resolve(
        {"target": {"model": model}, "speculative": {"model": str(folder), "method": "dspark"}}
    ).unwrap()
    network = DSparkDraft.load(config, table)
    golden = load_file(folder / "golden/tensors.safetensors")
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        name, anchor = case["name"], case["newest_token"]
        states = golden[f"{name}.aux_hidden_states"]
        assert torch.allclose(network.features(states), golden[f"{name}.context"], atol=1e-3)
        assert torch.allclose(Run(network, states, anchor, 7).hidden()[0], golden[f"{name}.block_hidden"], atol=1e-3)
        drafts, rows, confidences = Run(network, states, anchor, 7).greedy(7)
        assert torch.allclose(rows[0], golden[f"{name}.step0.draft_logits"], atol=1e-3)
        assert drafts == [step["draft"] for step in case["steps"]]
        assert confidences == pytest.approx([step["confidence"] for step in case["steps"]], abs=1e-3)
        tops = [row.topk(3) for row in rows]
        assert [network.to_target[top.indices].tolist() for top in tops] == [
            s["top3_target_ids"] for s in case["steps"]
        ]
        assert [top.values.tolist() for top in tops] == [
            pytest.approx(s["top3_logits"], abs=1e-3) for s in case["steps"]
        ]
