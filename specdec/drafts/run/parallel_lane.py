"""Rounds of one pass: placeholders stand where a chain would put drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from specdec.drafts.native.rounds import NativeRounds
from specdec.drafts.run.lane import Lane
from specdec.model.step import Drafts, Step


class Placeholders(Protocol):
    """What a network must have besides a ``DraftNetwork``'s methods."""

    mask_token_id: int

    def placeholder(self) -> torch.Tensor:
        """The feature [1, F] of an undrafted position."""


class ParallelLane(Lane):
    """Drafts that do not see each other: row 0 is the newest pair, row j a placeholder j positions behind it.

    Keys and values of placeholders are provisional, as those of drafts are: true pairs overwrite them.
    """

    @torch.inference_mode()
    def chain(self, step: Step) -> Drafts:
        """Draft all tokens in one pass over the waiting pairs and one placeholder less than drafts are wanted."""
        counts, round_ = self.begin(step)
        active = [r for r, count in enumerate(counts) if count]
        if not active:
            return round_.drafts()
        slots, wanted = [round_.slots[r] for r in active], [counts[r] for r in active]
        if (native := self.native) is not None:
            rows, starts, ids, states = NativeRounds(self, native).take(slots)
            tokens = self._tokens(ids, wanted)
            if round_.is_greedy and not round_.sampling.keeps_laws:
                drafted, _ = native.block(rows, starts, tokens, states, wanted)
                for r, row in zip(active, drafted, strict=True):
                    round_.token_ids[r] += row
                return round_.drafts()
            logits = native.logits(rows, starts, tokens, states, wanted)[0]
        else:
            hidden = self._one_pass(slots, wanted)
            logits = self.network.logits(torch.cat([row[-k:] for row, k in zip(hidden, wanted, strict=True)]))
        of_request = logits.split(wanted)
        for number in range(max(wanted)):
            still = [i for i, k in enumerate(wanted) if k > number]
            rows_of = torch.stack([of_request[i][number] for i in still])
            self.draw(round_, [active[i] for i in still], rows_of, number)
        return round_.drafts()

    def _one_pass(self, slots: Sequence[int], wanted: Sequence[int]) -> torch.Tensor:
        """What leaves the last layer [R, W, H], aligned to the right, of waiting pairs and placeholders."""
        self._shorten(slots)
        starts = [self.pairs.of[slot].start for slot in slots]
        taken = [self.pairs.of[slot].take() for slot in slots]
        ids = [row for row, _ in taken]
        features = self.network.features(torch.cat([states for _, states in taken])).split([len(row) for row in ids])
        blank = self._placeholders.placeholder()
        filled = [torch.cat((part, blank.expand(k - 1, -1))) for part, k in zip(features, wanted, strict=True)]
        hidden = self._forward(slots, self._tokens(ids, wanted), self._aligned(filled), starts, 0)
        for slot in slots:
            self.cache.length_of[slot] = self.pairs.of[slot].start
        return hidden

    def _tokens(self, ids: Sequence[list[int]], wanted: Sequence[int]) -> list[list[int]]:
        mask = self._placeholders.mask_token_id
        return [[*row, *[mask] * (k - 1)] for row, k in zip(ids, wanted, strict=True)]

    @property
    def _placeholders(self) -> Placeholders:
        return self.network  # type: ignore[return-value]
