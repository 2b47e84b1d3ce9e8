"""Heads on a target's last state that are fitted to its own greedy text, so that they are accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def trajectory(
    model: Any, prompts: Sequence[Sequence[int]], length: int, k: int
) -> tuple[list[list[int]], torch.Tensor, torch.Tensor]:
    """Greedy texts of ``length`` tokens; states [n, H] within them and the k + 1 tokens [n, k + 1] behind each."""
    texts, states, following = [], [], []
    with torch.inference_mode():
        for prompt in prompts:
            ids = model.generate(torch.tensor([prompt]), max_new_tokens=length + k, do_sample=False, pad_token_id=0)[0]
            hidden = model(ids[None], output_hidden_states=True).hidden_states[-1][0]
            texts.append(ids.tolist()[: len(prompt) + length])
            for position in range(len(prompt) - 1, len(ids) - k - 1):
                states.append(hidden[position])
                following.append(ids[position + 1 : position + k + 2])
    return texts, torch.stack(states), torch.stack(following)


def fitted(states: torch.Tensor, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Head weights [V, H'] whose argmax on these states is mostly these tokens."""
    target = torch.nn.functional.one_hot(tokens, vocab_size).float()
    gram = states.T @ states + 1e-3 * torch.eye(states.shape[1])
    return torch.linalg.solve(gram, states.T @ target).T.contiguous()


def medusa_weights(states: torch.Tensor, following: torch.Tensor, vocab_size: int = 60) -> dict[str, torch.Tensor]:
    """One residual block a head, random, and a fitted linear layer, under FasterDecoding's names."""
    torch.manual_seed(3)
    tensors, size = {}, states.shape[1]
    for i in range(following.shape[1] - 1):
        weight, bias = torch.randn(size, size) * 0.1, torch.randn(size) * 0.1
        x = states + torch.nn.functional.silu(states @ weight.T + bias)
        tensors |= {f"{i}.0.linear.weight": weight, f"{i}.0.linear.bias": bias}
        tensors[f"{i}.1.weight"] = fitted(x, following[:, i + 1], vocab_size) * 8
    return tensors


def mlp_weights(
    states: torch.Tensor, following: torch.Tensor, vocab_size: int = 60, inner: int = 48
) -> dict[str, torch.Tensor]:
    """Every weight random but the heads, which are fitted to what the steps make of the texts."""
    torch.manual_seed(4)
    k = following.shape[1] - 1
    ratio = math.sqrt((1 - 0.5 ** (1 / k)) * inner / 2) / 0.5 ** (0.5 / k)
    tensors, s = {}, states
    for i in range(k):
        emb, proj = torch.randn(vocab_size, inner) * 0.2, torch.randn(inner, s.shape[1]) * 0.2
        s = s @ proj.T + ratio * emb[following[:, i]]
        s = torch.nn.functional.gelu(s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6))
        named = {
            "emb": emb,
            "proj": proj,
            "ln": torch.ones(inner),
            "head": fitted(s, following[:, i + 1], vocab_size) * 8,
        }
        tensors |= {f"speculator.{name}.{i}.weight": tensor for name, tensor in named.items()}
        tensors[f"speculator.ln.{i}.bias"] = torch.zeros(inner)
    return tensors
