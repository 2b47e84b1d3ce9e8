"""Recognise a decoder layer by its parts and by what it computes, never by its name."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from specdec_kernels.cpu.native import BLOCK, MAX_HEAD_DIM, LayerParts, Norm, supports_linear
from torch import nn
from torch.nn import functional

LAYER_CHILDREN = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
ATTENTION_CHILDREN = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP_CHILDREN = {"gate_proj", "up_proj", "down_proj", "act_fn"}
# Plain values a matched module may hold: each is either used here or has no effect on an inference forward.
KNOWN_VALUES = {
    *("head_dim", "num_heads", "num_attention_heads", "num_key_value_heads", "num_key_value_groups", "hidden_size"),
    *(
        "intermediate_size",
        "scaling",
        "layer_idx",
        "is_causal",
        "attention_dropout",
        "sliding_window",
        "attention_type",
    ),
    *("layer_type", "training", "gradient_checkpointing", "rope_theta", "max_position_embeddings", "rope_type"),
}
ACTIVATIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    functional.silu,
    lambda x: functional.gelu(x, approximate="tanh"),
)


def rms_norm_of(module: nn.Module) -> Norm | None:
    """The scale and epsilon of a module that computes an RMS norm over its last dimension, else None."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if len(list(module.parameters())) != 1 or list(module.children()) or not isinstance(eps, float):
        return None
    if (
        not isinstance(weight, torch.Tensor)
        or weight.ndim != 1
        or weight.device.type != "cpu"
        or weight.numel() % BLOCK
    ):
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, weight.numel(), generator=generator) * torch.tensor([[1e-3], [0.1], [1.0], [30.0]])
    exact = copy.deepcopy(module).float()
    plain = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    try:
        got = exact(x)
    except (RuntimeError, TypeError, ValueError):
        return None
    for scale in (weight.float(), weight.float() + 1.0):  # some checkpoints store the scale minus one
        if isinstance(got, torch.Tensor) and torch.allclose(got, plain * scale, rtol=1e-5, atol=1e-6):
            return Norm(scale.contiguous(), eps)
    return None


def activation_of(module: nn.Module | Callable[[torch.Tensor], torch.Tensor]) -> int | None:
    """The index in ``ACTIVATIONS`` of what the module computes, None if it is another function."""
    x = torch.linspace(-12.0, 12.0, 97)
    got = module(x)
    for index, function in enumerate(ACTIVATIONS):
        if torch.allclose(got, function(x), rtol=1e-5, atol=1e-6):
            return index
    return None


def _unknown_values(module: nn.Module) -> list[str]:
    plain = (int, float, str, torch.Tensor)
    return [
        k for k, v in vars(module).items() if not k.startswith("_") and k not in KNOWN_VALUES and isinstance(v, plain)
    ]


def _hooked(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in module.modules())


def layer_parts(layer: nn.Module) -> LayerParts | None:
    """The parts of a pre-norm decoder layer with rotary grouped-query attention and a gated MLP; None for any other."""
    children = dict(layer.named_children())
    if set(children) != LAYER_CHILDREN or list(layer.parameters(recurse=False)):
        return None
    attention, mlp = children["self_attn"], children["mlp"]
    attention_parts, mlp_parts = dict(attention.named_children()), dict(mlp.named_children())
    extra = set(attention_parts) - ATTENTION_CHILDREN
    if not set(attention_parts) >= ATTENTION_CHILDREN or extra not in (set(), {"q_norm", "k_norm"}):
        return None
    if not set(mlp_parts) >= MLP_CHILDREN - {"act_fn"} or set(mlp_parts) - MLP_CHILDREN:
        return None
    if any(_unknown_values(m) for m in (layer, attention, mlp)) or any(_hooked(m) for m in (attention, mlp)):
        return None
    linears = {name: attention_parts[f"{name}_proj"] for name in ("q", "k", "v", "o")}
    linears |= {name: mlp_parts[f"{name}_proj"] for name in ("gate", "up", "down")}
    if not all(type(m) is nn.Linear and supports_linear(m) for m in linears.values()):
        return None
    if len({m.weight.dtype for m in linears.values()}) != 1:
        return None
    head_dim, scale, layer_idx = (getattr(attention, n, None) for n in ("head_dim", "scaling", "layer_idx"))
    if not isinstance(head_dim, int) or not isinstance(scale, float) or not isinstance(layer_idx, int):
        return None
    if head_dim % BLOCK or not 0 < head_dim <= MAX_HEAD_DIM:
        return None
    norms = {
        "input": rms_norm_of(children["input_layernorm"]),
        "post": rms_norm_of(children["post_attention_layernorm"]),
    }
    norms |= {name: rms_norm_of(attention_parts[name]) for name in extra}
    if any(norm is None for norm in norms.values()):
        return None
    activation = activation_of(mlp.act_fn) if callable(getattr(mlp, "act_fn", None)) else None
    heads, kv_heads = linears["q"].out_features // head_dim, linears["k"].out_features // head_dim
    if activation is None or kv_heads == 0 or heads % kv_heads:
        return None
    return LayerParts(norms["input"], norms["post"], norms.get("q_norm"), norms.get("k_norm"), linears,  # type: ignore[arg-type]
                      heads, kv_heads, head_dim, scale, activation, layer_idx)  # fmt: skip


def signature(layer: nn.Module) -> tuple[Any, ...]:
    """What two layers must share for one numerical check to cover both."""
    described: list[Any] = []
    for name, module in layer.named_modules():
        values = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str)) and k != "layer_idx"}
        shapes = [(k, tuple(p.shape), p.dtype) for k, p in module.named_parameters(recurse=False)]
        described.append((name, type(module), repr(sorted(values.items())), repr(shapes)))
    return tuple(described)


class _RecordingCache:
    """The smallest cache a decoder layer writes to: keeps all keys and values [rows, kv_heads, kv, head_dim]."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)
        return self.keys, self.values


def _run(forward: Callable[..., Any], hidden: int, head_dim: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Two forwards of two rows, the second with cached tokens and a mask, through ``forward`` of a decoder layer."""
    generator = torch.Generator().manual_seed(1)
    cache, outputs = _RecordingCache(), []
    for start, queries in ((0, 4), (4, 2)):
        x = (torch.randn(2, queries, hidden, generator=generator) * 2).to(dtype)
        position = torch.arange(start, start + queries)
        angle = (position[:, None] * torch.logspace(0, -3, head_dim // 2)).repeat(1, 2)[None].expand(2, -1, -1)
        mask = (torch.arange(start + queries)[None] <= position[:, None])[None, None].expand(2, 1, -1, -1).clone()
        mask[1, :, :, 0] = start + queries == 1
        out = forward(x, attention_mask=mask, position_ids=position[None].expand(2, -1), past_key_values=cache,
                      use_cache=True, position_embeddings=(angle.cos().to(dtype), angle.sin().to(dtype)))  # fmt: skip
        outputs.append(out[0] if isinstance(out, tuple) else out)
    return outputs


def computes_the_same(layer: nn.Module, wrap: Callable[[nn.Module], Callable[..., Any] | None]) -> bool:
    """Whether the native layer equals the stock one in float32 on random input; ``wrap`` builds it for a copy."""
    parts = layer_parts(layer)
    assert parts is not None
    exact = copy.deepcopy(layer).float().eval()
    config = getattr(exact.get_submodule("self_attn"), "config", None)
    native = wrap(exact)
    if native is None or "hidden_states" not in inspect.signature(exact.forward).parameters:
        return False
    chosen = getattr(config, "_attn_implementation", None)
    try:
        if config is not None:
            exact.get_submodule("self_attn").config = _with_sdpa(config)
        with torch.inference_mode():
            stock = _run(exact.forward, parts.linears["q"].in_features, parts.head_dim, torch.float32)
            ours = _run(native, parts.linears["q"].in_features, parts.head_dim, torch.float32)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError):
        return False
    finally:
        assert chosen == getattr(config, "_attn_implementation", None)
    return all(
        torch.allclose(a, b, rtol=1e-4, atol=1e-4 * float(a.abs().max())) for a, b in zip(stock, ours, strict=True)
    )


def _with_sdpa(config: Any) -> Any:
    """A copy of the config whose attention reads boolean masks."""
    changed = copy.copy(config)
    changed._attn_implementation = "sdpa"
    return changed
