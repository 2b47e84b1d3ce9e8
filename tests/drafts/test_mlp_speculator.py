"""The MLP speculator against the formula of its paper's code, and its loader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import specdec
from specdec.config.findings.diagnostics import ConfigError
from specdec.drafts.errors import DraftError
from specdec.drafts.mlp_speculator import MLPSpeculatorDraft

H, V, N = 16, 40, 3
TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "vocab_size": V,
          "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}  # fmt: skip
CONFIG = {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "emb_dim": H, "inner_dim": 24,
          "n_predict": N, "vocab_size": V, "n_candidates": 5, "top_k_tokens_per_head": [4, 3, 2]}  # fmt: skip
Tensors = dict[str, torch.Tensor]


def tensors(inner: int = 24, tied: bool = False) -> Tensors:
    """A set of weights; tied ones are the same tensors under every step's names."""
    torch.manual_seed(1)
    made: Tensors = {}
    for i in range(N):
        first = tied and i > 0
        made[f"emb.{i}.weight"] = made["emb.0.weight"] if first else torch.randn(V, inner)
        repeated = tied and i > 1
        made[f"proj.{i}.weight"] = made["proj.1.weight"] if repeated else torch.randn(inner, inner if i else H)
        made[f"head.{i}.weight"] = made["head.0.weight"] if first else torch.randn(V, inner)
        for leaf in ("weight", "bias"):
            made[f"ln.{i}.{leaf}"] = made[f"ln.0.{leaf}"] if first else torch.randn(inner)
    return made


def reference(weights: Tensors, state: torch.Tensor, token: int, inner: int, scaled: bool) -> list[torch.Tensor]:
    """Logits of every step for one state, each token the argmax before it; written after section 3 of the paper."""
    w_state = 0.5 ** (0.5 / N)
    w_token = math.sqrt((1 - w_state**2) * (inner / 2))
    s = state
    if scaled:
        s = s / torch.sqrt((s * s).mean() + 1e-6) / math.sqrt(2)
    rows = []
    for i in range(N):
        s = weights[f"proj.{i}.weight"] @ s + (w_token / w_state) * weights[f"emb.{i}.weight"][token]
        s = s / torch.sqrt((s * s).mean() + 1e-6) * weights[f"ln.{i}.weight"] + weights[f"ln.{i}.bias"]
        s = 0.5 * s * (1 + torch.erf(s / math.sqrt(2)))
        rows.append(weights[f"head.{i}.weight"] @ s)
        token = int(rows[-1].argmax())
    return rows


def chain(network: MLPSpeculatorDraft, states: torch.Tensor, tokens: torch.Tensor, k: int) -> torch.Tensor:
    """Logits [n, k, V] of ``k`` greedy steps through the interface."""
    feature, rows = network.features(states), []
    for step in range(k):
        hidden = network(network.inputs(tokens, feature, step=step), step=step)
        rows.append(network.logits(hidden, step))
        tokens, feature = rows[-1].argmax(-1), network.feedback(hidden, step)
    return torch.stack(rows, dim=1)


def load(folder: Path, config: dict[str, Any], weights: Tensors) -> MLPSpeculatorDraft:
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone() for name, tensor in weights.items()}, folder / "model.safetensors")
    resolution = specdec.resolve(
        {"speculative": {"method": "mlp_speculator", "model": str(folder)}}, target_config=TARGET
    )
    handle: Any = SimpleNamespace(hidden_size=H, vocab_size=V, dtype=torch.float32, device=torch.device("cpu"))
    return MLPSpeculatorDraft.load(resolution.unwrap(), handle)


def prefixed(weights: Tensors) -> Tensors:
    return {f"speculator.{name}": tensor for name, tensor in weights.items()}


@pytest.mark.parametrize("inner", [24, 0], ids=["inner", "inner-of-the-target"])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_equals_the_formula(tmp_path, inner, scaled):
    weights = tensors(inner or H)
    network = load(tmp_path, {**CONFIG, "inner_dim": inner, "scale_input": scaled}, prefixed(weights))
    states, tokens = torch.randn(4, H), torch.tensor([0, 7, 39, 7])
    want = torch.stack(
        [torch.stack(reference(weights, s, int(t), inner or H, scaled)) for s, t in zip(states, tokens, strict=True)]
    )
    torch.testing.assert_close(chain(network, states, tokens, N), want)
    torch.testing.assert_close(chain(network, states, tokens, 2), want[:, :2])  # fewer steps are a prefix


def test_names_without_the_prefix(tmp_path):
    weights = tensors()
    (tmp_path / "bare").mkdir()
    one, other = load(tmp_path, CONFIG, prefixed(weights)), load(tmp_path / "bare", CONFIG, weights)
    states, tokens = torch.randn(2, H), torch.tensor([1, 2])
    assert torch.equal(chain(one, states, tokens, N), chain(other, states, tokens, N))


@pytest.mark.parametrize("copies", [True, False], ids=["stored-per-step", "stored-once"])
def test_tied_weights(tmp_path, copies):
    weights = tensors(tied=True)
    once = {"emb.0.weight", "proj.0.weight", "proj.1.weight", "head.0.weight", "ln.0.weight", "ln.0.bias"}
    stored = weights if copies else {name: tensor for name, tensor in weights.items() if name in once}
    network = load(tmp_path, {**CONFIG, "tie_weights": True}, prefixed(stored))
    state, token = torch.randn(H), 5
    want = torch.stack(reference(weights, state, token, 24, False))
    torch.testing.assert_close(chain(network, state[None], torch.tensor([token]), N)[0], want)
    assert sum(p.numel() for p in network.parameters()) == sum(weights[name].numel() for name in once)


def without(*names: str):
    return lambda weights: {n: t for n, t in weights.items() if n not in names}


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        ({}, without("proj.1.weight"), "no tensor proj.1.weight"),
        ({}, without("ln.2.bias"), "no tensor ln.2.bias"),
        ({}, lambda w: {**w, "head.1.weight": torch.zeros(V, 23)}, "head.1.weight has shape [40, 23]"),
        ({}, lambda w: {**w, "extra.weight": torch.zeros(1)}, "extra.weight"),
        ({"tie_weights": True}, lambda w: w, "emb.1.weight is not that of the steps before"),
    ],
)  # fmt: skip
def test_a_wrong_checkpoint_is_one_message(tmp_path, config, change, says):
    with pytest.raises(DraftError) as caught:
        load(tmp_path, {**CONFIG, **config}, prefixed(change(tensors())))
    assert says in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"inner_dim": 32}, "inner_dim 32, but speculator.emb.0.weight has 24 columns"),
        ({"n_predict": 2}, "n_predict 2, but the weights hold 3 steps"),
        ({"n_predict": 4}, "n_predict 4, but the weights hold 3 steps"),
    ],
)
def test_a_config_that_lies_is_told_before_anything_is_loaded(tmp_path, config, says):
    with pytest.raises(ConfigError, match=says):
        load(tmp_path, {**CONFIG, **config}, prefixed(tensors()))
