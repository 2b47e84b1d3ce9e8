"""A decoder layer built from facts of the checkpoint, in plain torch: no model class is looked up by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Weights

_ONE_AXIS = "mrope"  # positions of several axes; in text all are equal, which is the default rotation
Rotation = tuple[torch.Tensor, torch.Tensor]  # cos and sin [R, W, rotated dimensions]


@dataclass(frozen=True)
class LayerFacts:
    """What one decoder layer looks like; ``input_size`` is the width that its attention reads."""

    hidden_size: int
    input_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    hidden_act: str = "silu"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    input_norm: bool = True
    unit_offset: bool = False  # norms multiply by 1 + weight
    interleaved: bool = False  # rotary pairs are neighbours instead of halves
    window: int | None = None  # positions seen, the own one included

    @classmethod
    def read(cls, draft: Mapping[str, Any], weights: Weights, prefix: str, **chosen: Any) -> LayerFacts:
        """Sizes from the draft's facts; what is there and what is not from the tensors below ``prefix``."""
        need = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        if lacking := [name for name in need if draft.get(name) is None]:
            raise DraftError(f"{weights.location}: the config.json does not say {lacking[0]}, which the draft needs")
        hidden, intermediate, heads, kv_heads, head_dim = (draft[name] for name in need)
        facts = {
            "hidden_size": hidden,
            "input_size": hidden,
            "intermediate_size": intermediate,
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": head_dim,
            "rms_norm_eps": draft["rms_norm_eps"],
            "hidden_act": draft.get("hidden_act") or "silu",
            "qkv_bias": f"{prefix}self_attn.q_proj.bias" in weights,
            "output_bias": f"{prefix}self_attn.o_proj.bias" in weights,
            "mlp_bias": f"{prefix}mlp.gate_proj.bias" in weights,
            "qk_norm": f"{prefix}self_attn.q_norm.weight" in weights,
            "interleaved": bool(draft.get("rope_interleaved")),
        }
        return cls(**(facts | chosen))


class RMSNorm(nn.Module):
    """Root mean square norm computed in float32; ``unit_offset`` multiplies by 1 + weight. Source: arXiv 1910.07467."""

    def __init__(self, size: int, eps: float, unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps, self.unit_offset = eps, unit_offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = x.float()
        values = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + self.eps)
        if self.unit_offset:
            return (values * (1.0 + self.weight.float())).to(x.dtype)
        return self.weight * values.to(x.dtype)


class Rotary(nn.Module):
    """Rotary angles from the draft's own parameters, never the target's. Source: arXiv 2104.09864.

    Raises ``DraftError`` for parameters that describe no rotation known here.
    """

    def __init__(self, draft: Mapping[str, Any]) -> None:
        super().__init__()
        scaling = draft.get("rope_scaling")
        parameters = {k: v for k, v in dict(scaling or {}).items() if k not in ("type", "rope_type") and v is not None}
        kind = draft.get("rope_type") or "default"
        kind = "default" if kind == _ONE_AXIS else kind
        if kind != "default" and kind not in ROPE_INIT_FUNCTIONS:
            raise DraftError(
                f"the draft's rope_type is {kind!r}; known are default, {', '.join(sorted(ROPE_INIT_FUNCTIONS))}"
            )
        if kind == "default":
            parameters = {}
        try:
            config = LlamaConfig(
                hidden_size=draft["hidden_size"],
                num_attention_heads=draft["num_attention_heads"],
                head_dim=draft["head_dim"],
                max_position_embeddings=draft.get("max_position_embeddings") or 2048,
                rope_parameters={**parameters, "rope_type": kind, "rope_theta": draft["rope_theta"]},
            )
            with torch.device("cpu"):
                self.angles = LlamaRotaryEmbedding(config)
        except Exception as error:  # the configuration class checks in ways of its own
            raise DraftError(f"the draft's rope_scaling describes no {kind} rotation: {error}") from error

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> Rotation:
        """cos and sin [R, W, D] in the dtype of ``x``, for positions [R, W]."""
        rotation: Rotation = self.angles(x, positions)
        return rotation


def rotate(x: torch.Tensor, rotation: Rotation, interleaved: bool = False) -> torch.Tensor:
    """Heads [R, heads, W, D] turned by cos and sin [R, W, d]; dimensions beyond d stay."""
    cos, sin = (part[:, None] for part in rotation)
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    if interleaved:
        half = cos.shape[-1] // 2
        cos, sin = (part[..., :half].repeat_interleave(2, -1) for part in (cos, sin))
        other = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        other = torch.cat((-second, first), -1)
    return torch.cat((turned * cos + other * sin, rest), -1)


class Attention(nn.Module):
    """Grouped-query attention; keys and values pass through a cache of transformers' protocol if there is one."""

    def __init__(self, facts: LayerFacts) -> None:
        super().__init__()
        self.facts = facts
        size, wide, narrow = facts.input_size, facts.num_heads * facts.head_dim, facts.num_kv_heads * facts.head_dim
        self.q_proj = nn.Linear(size, wide, bias=facts.qkv_bias)
        self.k_proj = nn.Linear(size, narrow, bias=facts.qkv_bias)
        self.v_proj = nn.Linear(size, narrow, bias=facts.qkv_bias)
        self.o_proj = nn.Linear(wide, facts.hidden_size, bias=facts.output_bias)
        if facts.qk_norm:
            self.q_norm = RMSNorm(facts.head_dim, facts.rms_norm_eps, facts.unit_offset)
            self.k_norm = RMSNorm(facts.head_dim, facts.rms_norm_eps, facts.unit_offset)

    def queries(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """Rotated queries [R, heads, W, D] of inputs [R, W, input_size]."""
        q = self.q_proj(x).unflatten(-1, (-1, self.facts.head_dim))
        q = self.q_norm(q) if self.facts.qk_norm else q
        return rotate(q.transpose(1, 2), rotation, self.facts.interleaved)

    def keys_values(self, x: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated keys and plain values [R, kv_heads, W, D] of inputs [R, W, input_size]."""
        k = self.k_proj(x).unflatten(-1, (-1, self.facts.head_dim))
        k = self.k_norm(k) if self.facts.qk_norm else k
        v = self.v_proj(x).unflatten(-1, (-1, self.facts.head_dim))
        return rotate(k.transpose(1, 2), rotation, self.facts.interleaved), v.transpose(1, 2)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Attention output [R, W, hidden]; ``mask`` as ``DraftNetwork.forward`` takes it, None = causal at the end."""
        if mask is None:
            mask = causal_mask(q.shape[2], k.shape[2], q.device, self.facts.window)
        grouped = k.shape[1] != q.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
        projected: torch.Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return projected

    def forward(self, x: torch.Tensor, rotation: Rotation, mask: Any, cache: Any, index: int) -> torch.Tensor:
        """Output [R, W, hidden] of inputs [R, W, input_size]; ``index`` is the layer's number in the cache."""
        k, v = self.keys_values(x, rotation)
        if cache is not None:
            k, v = cache.update(k, v, index)
        return self.attend(self.queries(x, rotation), k, v, mask)


class MLP(nn.Module):
    """Gated MLP: down(act(gate(x)) * up(x)). Source: arXiv 2002.05202."""

    def __init__(self, facts: LayerFacts) -> None:
        super().__init__()
        if facts.hidden_act not in ACT2FN:
            raise DraftError(f"the draft's hidden_act is {facts.hidden_act!r}, which transformers does not know")
        self.gate_proj = nn.Linear(facts.hidden_size, facts.intermediate_size, bias=facts.mlp_bias)
        self.up_proj = nn.Linear(facts.hidden_size, facts.intermediate_size, bias=facts.mlp_bias)
        self.down_proj = nn.Linear(facts.intermediate_size, facts.hidden_size, bias=facts.mlp_bias)
        self.act_fn = ACT2FN[facts.hidden_act]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Pre-norm decoder layer. Without ``input_norm`` the attention reads the stream as it is (EAGLE-1's first layer)."""

    def __init__(self, facts: LayerFacts, index: int) -> None:
        super().__init__()
        self.index, self.normed = index, facts.input_norm
        self.self_attn = Attention(facts)
        self.mlp = MLP(facts)
        if facts.input_norm:
            self.input_layernorm = RMSNorm(facts.hidden_size, facts.rms_norm_eps, facts.unit_offset)
        self.post_attention_layernorm = RMSNorm(facts.hidden_size, facts.rms_norm_eps, facts.unit_offset)

    def forward(
        self, x: torch.Tensor, rotation: Rotation, mask: Any, cache: Any, attends: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The stream [R, W, hidden] after the layer; ``attends`` [R, W, input_size] replaces the normed stream."""
        if attends is None:
            attends = self.input_layernorm(x) if self.normed else x
        x = x + self.self_attn(attends, rotation, mask, cache, self.index)
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def causal_mask(rows: int, keys: int, device: torch.device, window: int | None = None) -> torch.Tensor | None:
    """Bool [1, 1, rows, keys], True = visible, the rows being the last of the keys; None where all see all."""
    if rows == 1 and (window is None or keys <= window):
        return None
    ago = torch.arange(keys - rows, keys, device=device)[:, None] - torch.arange(keys, device=device)
    seen = ago >= 0 if window is None else (ago >= 0) & (ago < window)
    return seen[None, None]
