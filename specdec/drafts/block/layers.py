"""A decoder layer of a block draft: its context keys and values come from features, its block rows see each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from specdec.drafts.errors import DraftError
from specdec.drafts.layers import MLP, Attention, LayerFacts, RMSNorm, Rotation, rotate
from specdec.drafts.weights import Weights

Mixer = Callable[[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]
Visible = Callable[[int], torch.Tensor | None]  # the mask over so many keys
_SLIDING = "sliding_attention"


@dataclass(frozen=True)
class Sight:
    """Which keys a row of the block sees besides those before it."""

    causal: bool = False  # block rows behind it are hidden
    window: int | None = None  # keys at least this far away are hidden

    def mask(self, positions: torch.Tensor, num_keys: int) -> torch.Tensor | None:
        """Bool [R, 1, B, num_keys], True = visible, of block rows at ``positions`` [R, B]; key j stands at position j.

        None where one request's rows see all keys, its own being the last.
        """
        if len(positions) == 1 and not self.causal and self.window is None:
            return None
        keys = torch.arange(num_keys, device=positions.device)
        own = positions[:, :, None]
        seen = keys <= (own if self.causal else positions[:, -1:, None])
        if self.window is not None:
            seen = seen & (own - keys < self.window) & (keys - own < self.window)
        return seen[:, None]


def sights(draft: Mapping[str, Any], layers: int) -> list[Sight]:
    """How far each layer sees. Source: per-layer rules of vLLM's DFlash models and of the speculators library.

    Raises ``DraftError`` where a layer slides and no width is stated.
    """
    types = draft.get("layer_types") or ()
    if types and len(types) != layers:
        raise DraftError(f"the draft's layer_types name {len(types)} layers, and it has {layers}")
    slides = [kind == _SLIDING for kind in types] or [False] * layers
    if draft.get("use_swa") and not any(slides):
        slides = [True] * layers
    width = draft.get("swa_window_size")
    if any(slides) and not width:
        raise DraftError(
            "the draft has sliding layers, but its config.json states neither swa_window_size nor sliding_window"
        )
    stated = draft.get("is_causal")
    by_type = not draft.get("sliding_window_non_causal")
    return [Sight(slide and by_type if stated is None else bool(stated), width if slide else None) for slide in slides]


class BlockAttention(Attention):
    """Attention whose context keys and values are projections of features that no layer has touched.

    Values may be scaled, normed without a weight, or be the raw keys (Gemma 4); each head may have a sink logit.
    """

    def __init__(self, facts: LayerFacts, draft: Mapping[str, Any], weights: Weights, prefix: str) -> None:
        super().__init__(facts)
        self.value_scale = float(draft.get("attention_value_scale") or 1.0)
        self.scaling: float | None = draft.get("attention_scaling")
        self.norm_values = bool(draft.get("norms_values"))
        if f"{prefix}self_attn.v_proj.weight" not in weights and draft.get("keys_are_values"):
            del self.v_proj
        if draft.get("attention_sink_bias"):
            self.attention_sink_bias = nn.Parameter(torch.empty(facts.num_heads))

    def keys_values(self, x: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
        k = self.k_proj(x).unflatten(-1, (-1, self.facts.head_dim))
        v = self.v_proj(x).unflatten(-1, (-1, self.facts.head_dim)) if hasattr(self, "v_proj") else k
        if self.norm_values:
            wide = v.float()
            v = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.facts.rms_norm_eps)).to(v.dtype)
        k = self.k_norm(k) if self.facts.qk_norm else k
        v = v if self.value_scale == 1.0 else v * self.value_scale
        return rotate(k.transpose(1, 2), rotation, self.facts.interleaved), v.transpose(1, 2)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any) -> torch.Tensor:
        """Attention output [R, B, hidden]; ``mask`` is a ``Visible``, as the keys are counted by the cache."""
        mask = mask(k.shape[2])
        sinks = getattr(self, "attention_sink_bias", None)
        if sinks is not None:  # one more key that every row sees, whose value is zero
            zero = k.new_zeros(k.shape[0], k.shape[1], 1, k.shape[3])
            k, v = torch.cat((k, zero), 2), torch.cat((v, zero), 2)
            bias = sinks.to(q.dtype)[None, :, None, None].expand(q.shape[0], -1, q.shape[2], 1)
            seen = q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf) if mask is not None else q.new_zeros(1)
            mask = torch.cat((seen.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2] - 1), bias), -1)
        grouped = k.shape[1] != q.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped, scale=self.scaling)
        projected: torch.Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return projected


class BlockLayer(nn.Module):
    """Pre-norm layer; with sandwich norms and a scalar where the checkpoint stores them (Gemma 4).

    ``attention_mixer`` and ``mlp_mixer`` wrap a sub-layer: they are given its normed input and the sub-layer.
    """

    def __init__(self, facts: LayerFacts, draft: Mapping[str, Any], weights: Weights, index: int) -> None:
        super().__init__()
        self.index = index
        prefix = f"layers.{index}."
        self.self_attn = BlockAttention(facts, draft, weights, prefix)
        self.mlp = MLP(facts)
        self.attention_mixer: Mixer = _plain
        self.mlp_mixer: Mixer = _plain
        self.sandwich = f"{prefix}pre_feedforward_layernorm.weight" in weights
        names = ["input_layernorm", "post_attention_layernorm"]
        for name in names + ["pre_feedforward_layernorm", "post_feedforward_layernorm"] * self.sandwich:
            setattr(self, name, RMSNorm(facts.hidden_size, facts.rms_norm_eps, facts.unit_offset))
        if f"{prefix}layer_scalar" in weights:
            self.layer_scalar = nn.Parameter(torch.empty(1))

    def forward(self, x: torch.Tensor, rotation: Rotation, visible: Visible, cache: Any) -> torch.Tensor:
        """The stream [R, B, H] after the layer."""
        attend = lambda h: self.self_attn(h, rotation, visible, cache, self.index)  # noqa: E731
        mixed = self.attention_mixer(self.input_layernorm(x), attend)
        if not self.sandwich:
            x = x + mixed
            return x + self.mlp_mixer(self.post_attention_layernorm(x), self.mlp)
        x = x + self.post_attention_layernorm(mixed)
        mixed = self.mlp_mixer(self.pre_feedforward_layernorm(x), self.mlp)
        x = x + self.post_feedforward_layernorm(mixed)
        return x * self.layer_scalar if hasattr(self, "layer_scalar") else x


def _plain(x: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return sublayer(x)
