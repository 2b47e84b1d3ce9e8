"""Recurrent states of requests (linear attention, state spaces, short convolutions): snapshots that can be gone back to.

A recurrent state has no positions to cut off. So the state after every token that may still be rejected is kept, and the
next forward goes on from the one behind the last token that was accepted. A row holds ``depth`` snapshots in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, LinearAttentionLayer


@dataclass
class Spans:
    """Tokens of one forward, per request in the order of the batch."""

    rows: list[int]  # cache rows
    starts: list[int]  # positions of the first tokens
    counts: list[int]
    num_drafts: list[int]  # of the tokens, how many may be rejected
    snapshots: list[Snapshots] | None = None  # made by the first recurrent layer, the same for all


@dataclass
class Snapshots:
    """Where a request's states come from and go to."""

    before: int | None  # snapshot to go on from; None = no token yet
    after: list[int]  # one per token, or that of the last token alone where nothing can be rejected

    def behind(self, step: int) -> Any:
        """The snapshot behind a token of the forward; -1 = before the first."""
        return self.before if step < 0 else self.after[min(step, len(self.after) - 1)]


class RecurrentStates:
    """Snapshots [rows, depth, ...] of every recurrent layer; memory is taken when a layer first has a state."""

    def __init__(self, max_rows: int, depth: int = 2) -> None:
        self.max_rows, self.depth = max_rows, depth
        self.held: dict[tuple[int, str, int], torch.Tensor] = {}  # (layer, kind, number of the state)
        self._kept: list[dict[int, int]] = [{} for _ in range(max_rows)]  # per row: position -> snapshot behind it

    def plan(self, spans: Spans) -> list[Snapshots]:
        """Snapshots to read and to write in a forward; the states before it stay until the next one."""
        if spans.snapshots is None:
            columns = zip(spans.rows, spans.starts, spans.counts, spans.num_drafts, strict=True)
            spans.snapshots = [self._plan(*column) for column in columns]
        return spans.snapshots

    def _plan(self, row: int, start: int, count: int, drafts: int) -> Snapshots:
        before = self._kept[row][start - 1] if start else None
        first, steps = (0 if before is None else before + 1), count if drafts else 1
        if steps >= self.depth:
            raise ValueError(
                f"{count} tokens with drafts need {count + 1} snapshots of recurrent states, not {self.depth}"
            )
        after = [(first + step) % self.depth for step in range(steps)]
        kept = {} if before is None else {start - 1: before}
        self._kept[row] = kept | {start + count - steps + step: index for step, index in enumerate(after)}
        return Snapshots(before, after)

    def load(self, layer: int, rows: list[int], before: list[int], states: MixerStates) -> None:
        """Give ``states`` copies of these snapshots."""
        for (owner, kind, number), held in self.held.items():
            if owner == layer:
                states.put(kind, number, held[rows, before])

    def store(self, layer: int, rows: list[int], after: list[int], states: MixerStates) -> None:
        """Keep what ``states`` became."""
        for kind, number, state in states.items():
            key = (layer, kind, number)
            if key not in self.held:
                self.held[key] = state.new_zeros(self.max_rows, self.depth, *state.shape[1:])
            self.held[key][rows, after] = state

    def move(self, row: int, hole: int) -> None:
        """Copy a row to another."""
        self._kept[hole] = dict(self._kept[row])
        for held in self.held.values():
            held[hole] = held[row]

    @property
    def num_bytes(self) -> int:
        """Bytes reserved so far."""
        return sum(held.numel() * held.element_size() for held in self.held.values())


class MixerStates(LinearAttentionLayer):
    """States of some requests for one call of a mixer, in transformers' own form."""

    def put(self, kind: str, number: int, state: torch.Tensor) -> None:
        """Set a state that a mixer goes on from."""
        if kind == "conv":
            self.conv_states[number], self.conv_kernel_size[number] = state, state.shape[-1]
            self.is_conv_states_initialized[number] = True
        else:
            self.recurrent_states[number], self.is_recurrent_states_initialized[number] = state, True
        self.has_previous_state[number] = True
        self.device, self.dtype = state.device, state.dtype

    def items(self) -> list[tuple[str, int, torch.Tensor]]:
        """All states: kind, number, tensor [R, ...]."""
        both = (("conv", self.conv_states), ("recurrent", self.recurrent_states))
        return [(kind, n, state) for kind, held in both for n, state in held.items() if state is not None]


class MixerCache(Cache):
    """A cache for one call of a mixer: whatever layer is asked for, it has the same states."""

    def __init__(self, states: MixerStates) -> None:
        super().__init__(layers=_Every(states))  # type: ignore[arg-type]


class _Every(list):  # type: ignore[type-arg]
    """A list of one layer that stands at every index."""

    def __init__(self, layer: Any) -> None:
        super().__init__([layer])

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(0)

    def __len__(self) -> int:
        return 1 << 30
