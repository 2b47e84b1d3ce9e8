"""Medusa heads: every published layout of one set of weights gives the same logits, and a wrong one is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import specdec
from specdec.drafts.errors import DraftError
from specdec.drafts.medusa import MedusaDraft

H, V, K, DEPTH = 16, 40, 3, 2
TARGET = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "vocab_size": V,
          "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}  # fmt: skip
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def parts() -> tuple[Tensors, Tensors, torch.Tensor]:
    """Residual blocks by (head, block) and LM heads of one set of weights, and states."""
    torch.manual_seed(0)
    blocks = {f"{i}.{j}.{what}": torch.randn(H, H) * 0.3 if what == "weight" else torch.randn(H)
              for i in range(K) for j in range(DEPTH) for what in ("weight", "bias")}  # fmt: skip
    return blocks, {str(i): torch.randn(V, H) for i in range(K)}, torch.randn(5, H)


def expected(blocks: Tensors, heads: Tensors, states: torch.Tensor) -> torch.Tensor:
    rows = []
    for i in range(K):
        x = states
        for j in range(DEPTH):
            x = x + torch.nn.functional.silu(x @ blocks[f"{i}.{j}.weight"].T + blocks.get(f"{i}.{j}.bias", 0))
        rows.append(x @ heads[str(i)].T)
    return torch.stack(rows, dim=1)


def listed(blocks: Tensors, heads: Tensors, prefix: str = "") -> Tensors:
    """FasterDecoding's names."""
    tensors = {}
    for name, tensor in blocks.items():
        i, j, what = name.split(".")
        tensors[f"{prefix}{i}.{j}.linear.{what}"] = tensor
    return tensors | {f"{prefix}{i}.{DEPTH}.weight": tensor for i, tensor in heads.items()}


def former(blocks: Tensors, heads: Tensors, prefix: str = "") -> Tensors:
    """vLLM's former names."""
    tensors = {}
    for name, tensor in blocks.items():
        i, j, what = name.split(".")
        tensors[f"{prefix}blocks.{i}.layers.{j}.{what}"] = tensor
    return tensors | {f"{prefix}lm_heads.{i}.weight": tensor for i, tensor in heads.items()}


LISTED = {"base_model_name_or_path": "org/base", "medusa_num_heads": K, "medusa_num_layers": DEPTH}
FORMER = {"model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": H, "vocab_size": V, "num_heads": K,
          "num_hidden_layers": DEPTH, "truncated_vocab_size": V, "medusa_fc_bias": True}  # fmt: skip


def load(folder: Path, config: dict[str, Any], tensors: Tensors, **target: Any) -> MedusaDraft:
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    speculative = {"method": "medusa", "model": str(folder)}
    resolution = specdec.resolve({"speculative": speculative}, target_config={**TARGET, **target})
    lm_head = nn.Linear(H, V, bias=False)
    handle: Any = SimpleNamespace(
        hidden_size=H, vocab_size=V, dtype=torch.float32, device=torch.device("cpu"), lm_head=lm_head
    )
    network = MedusaDraft.load(resolution.unwrap(), handle)
    network.target_head = lm_head.weight.detach()
    return network


def base_model() -> Tensors:
    return {"model.embed_tokens.weight": torch.randn(V, H), "model.norm.weight": torch.ones(H),
            "lm_head.weight": torch.randn(V, H)}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (LISTED, lambda b, h: listed(b, h)),
        ({**LISTED, "medusa_num_heads": 2}, lambda b, h: listed(b, h)),  # published ones state fewer than they hold
        (LISTED, lambda b, h: listed(b, h, "medusa_lm_head.")),
        ({**TARGET, **LISTED}, lambda b, h: listed(b, h, "medusa_head.") | base_model()),  # merged into the target's
        ({**TARGET, **LISTED, "medusa_num_heads": 2}, lambda b, h: listed(b, h, "medusa_head.") | base_model()),
        (FORMER, lambda b, h: former(b, h)),
        (FORMER, lambda b, h: former(b, h, "medusa_heads.")),
    ],
    ids=["listed", "understated", "listed-prefixed", "merged", "merged-understated", "former", "former-prefixed"],
)
def test_every_layout_gives_the_same_logits(tmp_path, parts, config, tensors):
    blocks, heads, states = parts
    network = load(tmp_path, config, tensors(blocks, heads))
    want = expected(blocks, heads, states)
    torch.testing.assert_close(network.all_logits(states, K), want)
    torch.testing.assert_close(network.all_logits(states, 2), want[:, :2])
    for step in range(K):
        torch.testing.assert_close(network.logits(network(states, step=step), step), want[:, step])
    resolved = specdec.resolve(
        {"speculative": {"method": "medusa", "model": str(tmp_path)}}, target_config=TARGET
    ).unwrap()
    assert resolved.num_speculative_tokens == K
    assert (network.num_heads, network.vocab_size, network.feature_size, network.to_target) == (K, V, H, None)


@pytest.mark.parametrize("name", ["lm_head.weight", "original_lm_head.weight", "lm_heads.0.weight"])
def test_one_head_for_all(tmp_path, parts, name):
    blocks, heads, states = parts
    one = former(blocks, {}) | {name: heads["0"]}
    network = load(tmp_path, {**FORMER, "original_lm_head": True}, one)
    torch.testing.assert_close(
        network.all_logits(states, K), expected(blocks, dict.fromkeys("012", heads["0"]), states)
    )


def test_the_target_s_head_where_none_is_stored(tmp_path, parts):
    blocks, _, states = parts
    network = load(tmp_path, {**FORMER, "original_lm_head": True}, former(blocks, {}))
    heads = dict.fromkeys("012", network.target_head)
    torch.testing.assert_close(network.all_logits(states, K), expected(blocks, heads, states))


def test_heads_without_blocks_and_blocks_without_biases(tmp_path, parts):
    blocks, heads, states = parts
    bare = {f"{i}.0.weight": tensor for i, tensor in heads.items()}
    network = load(tmp_path, {**LISTED, "medusa_num_layers": 0}, bare)
    torch.testing.assert_close(network.all_logits(states, K), torch.stack([states @ heads[i].T for i in "012"], dim=1))
    unbiased = {name: tensor for name, tensor in blocks.items() if name.endswith("weight")}
    network = load(tmp_path, {**FORMER, "medusa_fc_bias": False}, former(unbiased, heads))
    torch.testing.assert_close(network.all_logits(states, K), expected(unbiased, heads, states))


@pytest.mark.parametrize("cut", [True, False], ids=["cut-heads", "whole-heads"])
def test_a_reduced_vocabulary(tmp_path, parts, cut):
    """token_map gives target ids; heads are stored cut to it, or whole."""
    blocks, heads, states = parts
    ids = torch.tensor([3, 39, 0, 17])
    stored = {i: tensor[ids] if cut else tensor for i, tensor in heads.items()}
    network = load(tmp_path, {**FORMER, "truncated_vocab_size": 4}, {**former(blocks, stored), "token_map": ids})
    assert network.to_target.tolist() == ids.tolist() and network.vocab_size == 4
    torch.testing.assert_close(network.all_logits(states, K), expected(blocks, heads, states)[..., ids])


def test_fresh_heads_draft_what_the_target_would_say_next(tmp_path, parts):
    """Zero blocks and the target's head: every head repeats the target's own argmax."""
    blocks, _, states = parts
    network = load(
        tmp_path, {**FORMER, "original_lm_head": True}, former({n: torch.zeros_like(t) for n, t in blocks.items()}, {})
    )
    want = (states @ network.target_head.T).argmax(-1)
    assert torch.equal(network.all_logits(states, K).argmax(-1), want[:, None].expand(-1, K))


def without(name: str):
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        (LISTED, without("1.0.linear.weight"), "no tensor blocks.1.0.weight"),
        (LISTED, without("2.1.linear.bias"), "no tensor blocks.2.1.bias"),
        (LISTED, without("1.2.weight"), "no tensor lm_heads.1.weight"),
        (LISTED, lambda t: {**t, "0.0.linear.weight": torch.zeros(H, H + 1)}, "0.0.linear.weight has shape [16, 17]"),
        (LISTED, lambda t: {**t, "1.2.weight": torch.zeros(V - 1, H)}, "head 1 has shape [39, 16]"),
        (LISTED, lambda t: {**t, "norm.weight": torch.zeros(H)}, "norm.weight"),
        (LISTED, lambda t: {**t, "0.1.weight": t["0.2.weight"]}, "0.1.weight"),
        (LISTED, lambda t: {**t, "token_map": torch.tensor([1, 1])}, "token_map holds an id twice"),
        (LISTED, lambda t: {**t, "token_map": torch.tensor([1, V])}, "token_map holds id 40"),
        (LISTED, lambda t: {**t, "0.0.linear.weight": t["0.0.linear.weight"].to(torch.float8_e4m3fn)}, "F8_E4M3"),
    ],
)  # fmt: skip
def test_a_wrong_checkpoint_is_one_message(tmp_path, parts, config, change, says):
    blocks, heads, _ = parts
    with pytest.raises(DraftError) as caught:
        load(tmp_path, config, change(listed(blocks, heads)))
    assert says in str(caught.value) and str(tmp_path) in str(caught.value)
