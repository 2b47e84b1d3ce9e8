"""All decoder layers, the final norm and the head of a target as one call over the tokens of several requests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, addressof, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from specdec_kernels.cpu.native import BLOCK, NativeLayer, NativeLinear, Norm, native_function
from torch import nn

from specdec.model.batch import Batch
from specdec.model.kv_cache import SlotCache

_CHECKED_POSITIONS = (0, 1, 7, 100)


class _StackLayer(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("layer", "norm1", "norm2", "q_norm", "k_norm", "keys", "values")],
        *[(name, c_int32) for name in ("window", "pad")],
    ]


class _Stack(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("layers", "norm", "cos", "sin", "head")],
        *[(name, c_int64) for name in ("row", "kv_head")],
        *[("count", c_int32), ("eps", c_float)],
    ]


class _Requests(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("first", "tokens", "start", "row")],
        *[(name, c_int32) for name in ("count", "pad")],
    ]


class _Outputs(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("wanted", "logits", "last", "aux", "boundaries")],
        *[(name, c_int32) for name in ("wanted_count", "boundary_count")],
    ]


@dataclass(frozen=True)
class StackParts:
    """What a stack is made of; ``windows`` holds one attention window per layer, 0 = all positions."""

    layers: Sequence[NativeLayer]
    windows: Sequence[int]
    embed: nn.Module
    rotary: nn.Module
    norm: Norm
    head: NativeLinear


class NativeStack:
    """Runs batches over the keys and values of a ``SlotCache``: no padding, no masks.

    ``max_tokens`` limits a forward; None = any number.
    """

    def __init__(self, parts: StackParts, max_tokens: int | None = None) -> None:
        self.parts, self.max_tokens = parts, max_tokens
        layer = parts.layers[0]
        self.dtype, self.hidden, self.vocab_size = layer.dtype, layer.hidden, parts.head.n
        self._call = native_function("stack", self.dtype, [c_void_p] * 4 + [ctypes.c_int])
        self._norms = [
            tuple(_packed(n.scale, self.dtype) if n is not None else None for n in _norms(layer))
            for layer in parts.layers
        ]
        self._final = _packed(parts.norm.scale, self.dtype)
        self._specs: WeakKeyDictionary[SlotCache, tuple[_Stack, Any] | None] = WeakKeyDictionary()

    def runs(self, batch: Batch) -> bool:
        """Whether this batch can run here: few enough tokens, and positions whose rotary tables are fixed."""
        few = self.max_tokens is None or sum(batch.counts) <= self.max_tokens
        return few and self._prepared(batch.cache) is not None

    def __call__(
        self, batch: Batch, want_last: bool = False, boundaries: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Logits [sum(batch.logits_counts), V], states after the final norm [N, H], at boundaries [N, A * H]."""
        prepared = self._prepared(batch.cache)
        assert prepared is not None
        tokens = batch.tokens[0] if len(batch.tokens) == 1 else [token for row in batch.tokens for token in row]
        x = self.parts.embed(torch.tensor(tokens))  # [N, H], the kernels' residual stream
        ends = list(accumulate(batch.counts))
        wanted = [i for end, count in zip(ends, batch.logits_counts, strict=True) for i in range(end - count, end)]
        columns = ([0, *ends[:-1]], batch.counts, batch.starts, batch.rows, wanted, boundaries)
        arrays = [(c_int32 * len(values))(*values) for values in columns]
        first, counts, starts, rows, needed, captured = (addressof(array) for array in arrays)
        logits = torch.empty((len(wanted), self.vocab_size), dtype=self.dtype)
        last = torch.empty_like(x) if want_last else None
        aux = torch.empty((len(x), len(boundaries) * self.hidden), dtype=self.dtype) if boundaries else None
        requests = _Requests(first, counts, starts, rows, len(ends), 0)
        outputs = _Outputs(
            needed, logits.data_ptr(), _address(last), _address(aux), captured, len(wanted), len(boundaries)
        )
        stack = addressof(prepared[0])
        self._call(stack, addressof(requests), x.data_ptr(), addressof(outputs), torch.get_num_threads())
        return logits, last, aux

    def _prepared(self, cache: SlotCache) -> tuple[_Stack, Any] | None:
        if cache not in self._specs:
            self._specs[cache] = self._describe(cache)
        return self._specs[cache]

    def _describe(self, cache: SlotCache) -> tuple[_Stack, Any] | None:
        """Allocate the cache and describe where its layers lie; None when the rotary tables depend on the length."""
        parts = self.parts.layers[0].parts
        tables = rotary_tables(self.parts.rotary, cache.capacity, parts.head_dim, self.dtype)
        if tables is None or len(cache.layers) != len(self.parts.layers):
            return None
        empty = torch.empty((1, parts.kv_heads, 0, parts.head_dim), dtype=self.dtype)
        for layer in cache.layers:
            if not layer.is_initialized:
                layer.lazy_initialization(empty, empty)
        described = [
            _StackLayer(
                layer.address, *(_address(n) for n in norms), held.keys.data_ptr(), held.values.data_ptr(), window, 0
            )
            for layer, norms, held, window in zip(
                self.parts.layers, self._norms, cache.layers, self.parts.windows, strict=True
            )
        ]
        layers = (_StackLayer * len(described))(*described)
        head, row = self.parts.head, cache.layers[0].keys.stride()
        stack = _Stack(
            *(addressof(layers), self._final.data_ptr(), tables[0].data_ptr(), tables[1].data_ptr(), head.address),
            *(row[0], row[1], len(described), self.parts.norm.eps),
        )
        return stack, (layers, tables)


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
    cos, sin = (_packed(table[0].to(dtype).float(), dtype) for table in whole)
    return cos, sin


def _norms(layer: NativeLayer) -> tuple[Norm | None, ...]:
    p = layer.parts
    return p.input_norm, p.post_norm, p.q_norm, p.k_norm


def _packed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Float32 values in the order in which the kernels hold each block of 16 of the last dimension."""
    order = (ctypes.c_int32 * BLOCK)()
    native_function("packed_order", dtype, [c_void_p])(order)
    shape = values.shape
    return values.float().reshape(*shape[:-1], -1, BLOCK)[..., list(order)].reshape(shape).contiguous()


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
