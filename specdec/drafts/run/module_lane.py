"""Runs several MTP modules: every step reads a window of positions, of which only the newest rows are guesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec.drafts.run.lane import Lane
from specdec.model.step import Drafts, Step

_CHUNK = 1024  # rows of one catch-up window


class ModuleLane(Lane):
    """Draft KV of every step of a network whose steps differ.

    Row p of step j pairs the token at p + 1 + j with what step j - 1 fed back at p (step 0: the target's state at p).
    With M known tokens a row is true where p + 1 + j < M. The j rows behind hold drafts, so the next round makes them
    again, with the rows of earlier steps that they read: no guess outlives its round, whatever was accepted.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.true_rows: dict[int, list[int]] = {}  # slot -> per step: rows made of known tokens and true states

    def start(self, slot: int) -> None:
        super().start(slot)
        self.true_rows[slot] = [0] * self.network.num_layers

    def finish(self, slot: int) -> None:
        super().finish(slot)
        self.true_rows.pop(slot, None)

    @torch.inference_mode()
    def chain(self, step: Step) -> Drafts:
        """One draft of each step's module, every one over the window of rows that are not true yet."""
        counts, round_ = self.begin(step)
        active = [r for r, count in enumerate(counts) if count]
        if not active:
            return round_.drafts()
        for r in active:
            self._catch_up_alone(round_.slots[r], counts[r])
        every = slots = [round_.slots[r] for r in active]
        starts = [min(self.true_rows[slot][: counts[r]]) for slot, r in zip(slots, active, strict=True)]
        features = self._windows(slots, starts, [self.pairs.of[slot].end for slot in slots])
        for number in range(max(counts)):
            still = [i for i, r in enumerate(active) if counts[r] > number]
            if len(still) < len(active):
                active, slots, starts = ([column[i] for i in still] for column in (active, slots, starts))
                features = features[still]
            tokens = [
                self._tokens(s, at, number, round_.token_ids[r]) for s, at, r in zip(slots, starts, active, strict=True)
            ]
            features = features[:, features.shape[1] - max(map(len, tokens)) :]
            hidden = self._forward(slots, tokens, features, starts, number)
            self.draw(round_, active, self.network.logits(hidden[:, -1], number), number)
            features = self.network.feedback(hidden, number)
            for slot in slots:
                self.true_rows[slot][number] = max(0, self.pairs.of[slot].end - number)
                self.cache.length_of[slot] = self.pairs.of[slot].end
        for slot in every:
            self._forget(slot)
        return round_.drafts()

    def _inputs(
        self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor, number: int
    ) -> torch.Tensor:
        inputs: torch.Tensor = self.network.inputs(token_ids, features, first, number)  # type: ignore[call-arg]
        return inputs

    def _tokens(self, slot: int, start: int, number: int, drafted: Sequence[int]) -> list[int]:
        """Tokens of the rows from ``start`` to the newest pair: known ones, then drafts."""
        pairs = self.pairs.of[slot]
        known = [*pairs.token_ids, *drafted]
        return known[start - pairs.start + number : pairs.end - pairs.start + number]

    def _windows(self, slots: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> torch.Tensor:
        """Features [R, W, F] of positions starts..ends, aligned to the right."""
        parts = []
        for slot, start, end in zip(slots, starts, ends, strict=True):
            pairs = self.pairs.of[slot]
            if len(pairs.states) > 1:
                pairs.states = [torch.cat(pairs.states)]
            parts.append(self.network.features(pairs.states[0][start - pairs.start : end - pairs.start]))
        width = max(map(len, parts))
        return torch.stack([torch.nn.functional.pad(part, (0, 0, width - len(part), 0)) for part in parts])

    def _catch_up_alone(self, slot: int, count: int) -> None:
        """Long windows: their true rows in pieces, without the other requests."""
        true, pairs = self.true_rows[slot], self.pairs.of[slot]
        while pairs.end - min(true[:count]) > _CHUNK + count:
            start = min(true[:count])
            end = min(start + _CHUNK, pairs.end - count + 1)
            features = self._windows([slot], [start], [end])
            for number in range(count):
                tokens = self._tokens(slot, start, number, ())[: end - start]
                hidden = self._forward([slot], [tokens], features, [start], number)
                features = self.network.feedback(hidden, number)
                true[number] = end
            self.cache.length_of[slot] = end
            self._forget(slot)

    def _forget(self, slot: int) -> None:
        """Drop pairs that every step has in its cache."""
        pairs, keep = self.pairs.of[slot], min(self.true_rows[slot])
        if keep > pairs.start:
            pairs.take(keep - pairs.start)
