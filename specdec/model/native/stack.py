"""All decoder layers, the final norm and the head of a target as one call over the tokens of several requests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, addressof, c_int32, c_void_p
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from specdec_kernels.cpu.native import NativeLayer, NativeLinear, Norm, native_function
from torch import nn

from specdec.model.batch import Batch
from specdec.model.kv_cache import SlotCache
from specdec.model.native.layout import Stack, address, describe_layers, packed, packed_norms, rotary_tables


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
        self._norms = [packed_norms(layer) for layer in parts.layers]
        self._final = packed(parts.norm.scale, self.dtype)
        self._specs: WeakKeyDictionary[SlotCache, tuple[Stack, Any] | None] = WeakKeyDictionary()

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
            needed, logits.data_ptr(), address(last), address(aux), captured, len(wanted), len(boundaries)
        )
        stack = addressof(prepared[0])
        self._call(stack, addressof(requests), x.data_ptr(), addressof(outputs), torch.get_num_threads())
        return logits, last, aux

    def _prepared(self, cache: SlotCache) -> tuple[Stack, Any] | None:
        if cache not in self._specs:
            self._specs[cache] = self._describe(cache)
        return self._specs[cache]

    def _describe(self, cache: SlotCache) -> tuple[Stack, Any] | None:
        """Allocate the cache and describe where its layers lie; None when the rotary tables depend on the length."""
        parts = self.parts.layers[0].parts
        tables = rotary_tables(self.parts.rotary, cache.capacity, parts.head_dim, self.dtype)
        if tables is None or len(cache.layers) != len(self.parts.layers):
            return None
        layers = describe_layers(self.parts.layers, self._norms, self.parts.windows, [False] * len(cache.layers), cache)
        head, row = self.parts.head, cache.layers[0].keys.stride()
        stack = Stack(
            *(addressof(layers), self._final.data_ptr(), tables[0].data_ptr(), tables[1].data_ptr(), head.address),
            *(row[0], row[1], len(layers), self.parts.norm.eps),
        )
        return stack, (layers, tables)
