"""DFlash and DSpark written down a second time: float64, one request, no cache, loops over rows and tokens.

Nothing here comes from the package; the formulas are those of arXiv 2602.06036 and 2607.05147.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Tensors = Mapping[str, torch.Tensor]


def norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    scaled = x / math.sqrt(float((x * x).mean()) + eps)
    return scaled if weight is None else scaled * weight


def rope(x: torch.Tensor, position: int, theta: float) -> torch.Tensor:
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def block_hidden(
    config: Mapping[str, Any],
    tensors: Tensors,
    states: torch.Tensor,  # [P, A * H]
    embedded: torch.Tensor,  # [B, H] embeddings of the anchor and the masks
    causal: Sequence[bool],
    windows: Sequence[int | None],
) -> torch.Tensor:
    """Rows [B, H] after the final norm, of a block behind P committed positions."""
    t = {name: tensor.double() for name, tensor in tensors.items()}
    eps, theta, width = config["rms_norm_eps"], config["rope_theta"], config["head_dim"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    past = len(states)
    context = [norm(t["fc.weight"] @ row.double(), t["hidden_norm.weight"], eps) for row in states]
    x = [row.double() for row in embedded]
    for layer in range(config["num_hidden_layers"]):
        at = f"layers.{layer}."
        normed = [norm(row, t[at + "input_layernorm.weight"], eps) for row in x]
        keys, values = [], []
        for position, source in enumerate([*context, *normed]):
            k = (t[at + "self_attn.k_proj.weight"] @ source).view(kv, width)
            keys.append([rope(norm(h, t[at + "self_attn.k_norm.weight"], eps), position, theta) for h in k])
            values.append((t[at + "self_attn.v_proj.weight"] @ source).view(kv, width))
        for i, source in enumerate(normed):
            q = (t[at + "self_attn.q_proj.weight"] @ source).view(heads, width)
            parts = []
            for h in range(heads):
                query = rope(norm(q[h], t[at + "self_attn.q_norm.weight"], eps), past + i, theta)
                group = h * kv // heads
                seen = [
                    j
                    for j in range(past + len(x))
                    if (j <= past + i or not causal[layer])
                    and (windows[layer] is None or abs(past + i - j) < windows[layer])
                ]
                weights = torch.softmax(torch.stack([query @ keys[j][group] for j in seen]) / math.sqrt(width), 0)
                parts.append(sum(w * values[j][group] for w, j in zip(weights, seen, strict=True)))
            x[i] = x[i] + t[at + "self_attn.o_proj.weight"] @ torch.cat(parts)
        for i, row in enumerate(x):
            m = norm(row, t[at + "post_attention_layernorm.weight"], eps)
            gate, up = t[at + "mlp.gate_proj.weight"] @ m, t[at + "mlp.up_proj.weight"] @ m
            x[i] = row + t[at + "mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)
    return torch.stack([norm(row, t["norm.weight"], eps) for row in x])


def markov_chain(
    config: Mapping[str, Any],
    tensors: Tensors,
    hidden: torch.Tensor,  # [S, H] sampled rows
    base: torch.Tensor,  # [S, V_d]
    anchor: int,
    to_target: Sequence[int],
) -> tuple[list[int], list[torch.Tensor], list[float]]:
    """Greedy drafts (target ids), corrected logits of each, and confidences."""
    t = {name: tensor.double() for name, tensor in tensors.items()}
    previous, drafts, rows, confidences = anchor, [], [], []
    rank = config["markov_rank"]
    state = torch.zeros(rank, dtype=torch.float64)
    for h, logits in zip(hidden, base, strict=True):
        e = t["markov_head.markov_w1.weight"][previous]
        kind = config["markov_head_type"]
        if kind == "gated":
            gate = t["markov_head.gate_proj.weight"] @ torch.cat([h, e]) + t["markov_head.gate_proj.bias"]
            latent = e / (1 + torch.exp(-gate))
        elif kind == "rnn":
            z = t["markov_head.joint_proj.weight"] @ torch.cat([state, e, h]) + t["markov_head.joint_proj.bias"]
            gate, candidate, out = z[:rank], z[rank : 2 * rank], z[2 * rank :]
            keep = 1 / (1 + torch.exp(-gate))
            state, latent = keep * state + (1 - keep) * torch.tanh(candidate), torch.tanh(out)
        else:
            latent = e
        corrected = logits + t["markov_head.markov_w2.weight"] @ latent
        score = t["confidence_head.proj.weight"][0] @ torch.cat([h, e]) + t["confidence_head.proj.bias"][0]
        confidences.append(float(1 / (1 + torch.exp(-score))))
        rows.append(corrected)
        previous = to_target[int(corrected.argmax())]
        drafts.append(previous)
    return drafts, rows, confidences
