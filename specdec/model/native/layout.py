"""How decoder layers, their caches and rotary tables lie in memory, as the kernels read them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_float, c_int32, c_int64, c_void_p
from typing import Any

import torch
from specdec_kernels.cpu.native import BLOCK, NativeLayer, Norm, native_function
from torch import nn

from specdec.model.kv_cache import SlotCache

_CHECKED_POSITIONS = (0, 1, 7, 100)


class StackLayer(Structure):
    """``StackLayer`` of stack.h."""

    _fields_ = [
        *[(name, c_void_p) for name in ("layer", "norm1", "norm2", "q_norm", "k_norm", "keys", "values")],
        *[(name, c_int32) for name in ("window", "both")],
    ]


class Stack(Structure):
    """``Stack`` of stack.h."""

    _fields_ = [
        *[(name, c_void_p) for name in ("layers", "norm", "cos", "sin", "head")],
        *[(name, c_int64) for name in ("row", "kv_head")],
        *[("count", c_int32), ("eps", c_float)],
    ]


def describe_layers(
    layers: Sequence[NativeLayer],
    norms: Sequence[tuple[torch.Tensor | None, ...]],
    windows: Sequence[int],
    both_ways: Sequence[bool],
    cache: SlotCache,
) -> Any:
    """An array of ``StackLayer`` over the rows of ``cache``, which is allocated if it was not."""
    parts = layers[0].parts
    empty = torch.empty((1, parts.kv_heads, 0, parts.head_dim), dtype=layers[0].dtype)
    for held in cache.layers:
        if not held.is_initialized:
            held.lazy_initialization(empty, empty)
    described = [
        StackLayer(layer.address, *map(address, own), held.keys.data_ptr(), held.values.data_ptr(), window, both)
        for layer, own, held, window, both in zip(layers, norms, cache.layers, windows, both_ways, strict=True)
    ]
    return (StackLayer * len(described))(*described)


def rotary_tables(
    rotary: nn.Module, positions: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Packed float32 cos and sin [positions, head_dim]; None if a position's values depend on the others'."""
    x = torch.empty((1, 1, head_dim), dtype=dtype)
    try:
        whole = rotary(x, torch.arange(positions)[None])
        alone = [(p, rotary(x, torch.tensor([[p]]))) for p in _CHECKED_POSITIONS if p < positions]
    except (RuntimeError, TypeError, ValueError, KeyError):
        return None
    if not isinstance(whole, tuple) or len(whole) != 2 or any(t.shape != (1, positions, head_dim) for t in whole):
        return None
    if any(
        not torch.equal(table[:, p], one[:, 0]) for p, pair in alone for table, one in zip(whole, pair, strict=True)
    ):
        return None
    cos, sin = (packed(table[0].to(dtype).float(), dtype) for table in whole)
    return cos, sin


def packed_norms(layer: NativeLayer) -> tuple[torch.Tensor | None, ...]:
    """Scales of a layer's norms (input, post-attention, q, k) in the kernels' order."""
    p = layer.parts
    return tuple(packed_scale(n, layer.dtype) for n in (p.input_norm, p.post_norm, p.q_norm, p.k_norm))


def packed_scale(norm: Norm | None, dtype: torch.dtype) -> torch.Tensor | None:
    """The scale of a norm in the kernels' order; None for no norm."""
    return None if norm is None else packed(norm.scale, dtype)


def packed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Float32 values in the order in which the kernels hold each block of 16 of the last dimension."""
    order = (ctypes.c_int32 * BLOCK)()
    native_function("packed_order", dtype, [c_void_p])(order)
    shape = values.shape
    return values.float().reshape(*shape[:-1], -1, BLOCK)[..., list(order)].reshape(shape).contiguous()


def address(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor lies; None for no tensor."""
    return None if tensor is None else tensor.data_ptr()
