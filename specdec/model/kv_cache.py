"""KV slots with a length per request, as a transformers ``Cache``.

``keys`` and ``values`` of a layer are [rows, kv_heads, capacity, head_dim]. A request owns one row from admission to
its end; how much of the row counts is the request's own length, so rejected tokens need no clean-up: they are simply
overwritten. Rows stay packed at the front (``release`` moves the last one into the hole), so a step over all requests
reads views, never copies. The last position of every row is a bin for padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from specdec.model.recurrent.states import RecurrentStates, Spans


@dataclass
class CachePlan:
    """Where one forward over [R, W] tokens writes, and what it reads."""

    first_row: int  # rows are first_row .. first_row + R - 1, unless `rows` is given
    num_rows: int
    kv_len: int  # positions read per row
    start: int | None  # all rows write start .. start + W - 1, without padding; None = use `positions`
    positions: torch.Tensor | None = None  # [R, W] positions to write; padding writes to the bin
    rows: torch.Tensor | None = None  # [R] rows that are not neighbours: reading copies
    row_column: torch.Tensor | None = None  # [R, 1] rows, next to `positions`
    spans: Spans | None = None  # which tokens are whose, for recurrent layers


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values; allocated when the first token arrives, zeroed so that masked entries are finite."""

    is_compileable = False
    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, capacity = self.cache.max_rows, self.cache.capacity
        self.dtype, self.device = key_states.dtype, key_states.device

        def zeros(like: torch.Tensor) -> torch.Tensor:
            return torch.zeros(rows, like.shape[1], capacity, like.shape[3], dtype=like.dtype, device=like.device)

        self.keys, self.values = zeros(key_states), zeros(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        plan = self.cache.plan
        first, last, kv_len = plan.first_row, plan.first_row + plan.num_rows, plan.kv_len
        if plan.start is not None:
            end = plan.start + key_states.shape[2]
            self.keys[first:last, :, plan.start : end] = key_states
            self.values[first:last, :, plan.start : end] = value_states
        else:
            self.keys[plan.row_column, :, plan.positions] = key_states.transpose(1, 2)
            self.values[plan.row_column, :, plan.positions] = value_states.transpose(1, 2)
        if plan.rows is not None:
            return self.keys[plan.rows, :, :kv_len], self.values[plan.rows, :, :kv_len]
        return self.keys[first:last, :, :kv_len], self.values[first:last, :, :kv_len]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.plan.kv_len, 0

    def get_seq_length(self) -> int:
        return self.cache.plan.start or 0

    def get_max_length(self) -> int:
        return self.cache.capacity


class SlotMap:
    """The row that each slot has now, in every cache that shares the map; rows in use are packed at the front."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.row_of: dict[int, int] = {}
        self.caches: list[SlotCache] = []

    def acquire(self, slot: int) -> None:
        """Give ``slot`` the first free row."""
        self.row_of[slot] = len(self.row_of)
        for cache in self.caches:
            cache.length_of[slot] = 0

    def release(self, slot: int) -> None:
        """Free the row of ``slot`` and move the last row in use into its place, in every cache."""
        hole = self.row_of.pop(slot)
        for cache in self.caches:
            cache.length_of.pop(slot)
        last = len(self.row_of)
        if hole == last:
            return
        mover = next(other for other, row in self.row_of.items() if row == last)
        for cache in self.caches:
            cache.move(last, hole, cache.length_of[mover])
        self.row_of[mover] = hole


class SlotCache(Cache):
    """Rows of ``capacity`` positions for up to ``max_rows`` requests; ``row_of[slot]`` is a request's row now.

    Caches that are given the same ``slots`` allocate and move their rows together.
    """

    def __init__(self, num_layers: int, max_rows: int, max_model_len: int, slots: SlotMap | None = None) -> None:
        self.slots = slots or SlotMap(max_rows)
        self.slots.caches.append(self)
        self.max_rows = self.slots.max_rows
        self.bin = max_model_len  # position that padding is written to
        self.capacity = max_model_len + 1
        self.plan = CachePlan(0, 1, 0, 0)
        self.recurrent = RecurrentStates(self.max_rows)
        self._positions: torch.Tensor | None = None
        self.length_of = dict.fromkeys(self.slots.row_of, 0)  # positions worth moving when a row moves
        super().__init__(layers=[SlotLayer(self) for _ in range(num_layers)])

    def all_positions(self, device: torch.device) -> torch.Tensor:
        """[1, capacity] 0, 1, 2, ... to slice from."""
        if self._positions is None:
            self._positions = torch.arange(self.capacity, device=device)[None]
        return self._positions

    @property
    def row_of(self) -> dict[int, int]:
        return self.slots.row_of

    def acquire(self, slot: int) -> None:
        """Give ``slot`` the first free row, here and in the caches that share its slots."""
        self.slots.acquire(slot)

    def release(self, slot: int) -> None:
        """Free the row of ``slot``, here and in the caches that share its slots."""
        self.slots.release(slot)

    def move(self, row: int, hole: int, length: int) -> None:
        """Copy the first ``length`` positions of a row to another."""
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys[hole, :, :length] = layer.keys[row, :, :length]
                layer.values[hole, :, :length] = layer.values[row, :, :length]
        self.recurrent.move(row, hole)

    def read(self, slot: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [kv_heads, length, head_dim] of a request in one layer, as views."""
        row, length = self.row_of[slot], self.length_of[slot]
        held = self.layers[layer]
        return held.keys[row, :, :length], held.values[row, :, :length]

    @property
    def num_bytes(self) -> int:
        """Bytes reserved so far."""
        tensors = [t for layer in self.layers if layer.is_initialized for t in (layer.keys, layer.values)]
        return sum(t.numel() * t.element_size() for t in tensors) + self.recurrent.num_bytes
