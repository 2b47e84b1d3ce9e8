"""Take a draft's decoder layer apart, for the native kernels."""

from __future__ import annotations

from typing import Any

from specdec_kernels.cpu.native import BLOCK, MAX_HEAD_DIM, LayerParts, supports_linear
from torch import nn

from specdec.model.native.match import activation_of, rms_norm_of

_LINEARS = {"self_attn": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down")}


def draft_layer_parts(layer: Any, index: int, own_input: bool) -> LayerParts | None:
    """The parts of a pre-norm rotary layer with a gated MLP; None for any other. Whether they add up is for a check to say.

    ``own_input``: the layer reads its own norm of the residual stream, or the stream where that norm is no norm.
    """
    found: dict[str, nn.Linear] = {}
    for room, names in _LINEARS.items():
        for name in names:
            module = getattr(getattr(layer, room, None), f"{name}_proj", None)
            if type(module) is not nn.Linear or not supports_linear(module):
                return None
            found[name] = module
    attention, mlp = layer.self_attn, layer.mlp
    head_dim = getattr(attention, "head_dim", None) or getattr(getattr(attention, "facts", None), "head_dim", None)
    post = rms_norm_of(layer.post_attention_layernorm)
    before = getattr(layer, "input_layernorm", None)
    plain = not own_input or before is None or isinstance(before, nn.Identity)
    norms = [None if plain else rms_norm_of(before)]
    for name in ("q_norm", "k_norm"):
        module = getattr(attention, name, None)
        norms.append(None if module is None else rms_norm_of(module))
        if module is not None and norms[-1] is None:
            return None
    if post is None or (norms[0] is None and not plain) or not isinstance(head_dim, int):
        return None
    activation = activation_of(mlp.act_fn) if callable(getattr(mlp, "act_fn", None)) else None
    heads, kv_heads = found["q"].out_features // head_dim, found["k"].out_features // head_dim
    fits = head_dim % BLOCK == 0 and head_dim <= MAX_HEAD_DIM and kv_heads > 0 and heads % kv_heads == 0
    if activation is None or not fits or len({m.weight.dtype for m in found.values()}) != 1:
        return None
    scale = float(getattr(attention, "scaling", None) or head_dim**-0.5)
    return LayerParts(norms[0], post, norms[1], norms[2], found, heads, kv_heads, head_dim, scale, activation, index)
