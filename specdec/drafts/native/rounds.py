"""Rounds of a lane in the native kernels: one call where every draft is an argmax, else one a draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.run.sampling import DraftRound

if TYPE_CHECKING:
    from specdec.drafts.run.lane import Lane

_CHUNK = 512  # pairs of one call, which keeps what lies between the layers in the caches


class NativeRounds:
    """Runs what waits in a lane, with the lane's pairs, rows and draws."""

    def __init__(self, lane: Lane, native: NativeDraft) -> None:
        self.lane, self.native = lane, native

    def chain(self, round_: DraftRound, active: Sequence[int], counts: Sequence[int]) -> None:
        """Draft ``counts`` tokens for the requests ``active`` of a round."""
        rows, starts, tokens, states = self.take([round_.slots[r] for r in active])
        if round_.is_greedy and not round_.sampling.keeps_laws:
            drafted, _ = self.native.chain(rows, starts, tokens, states, counts)
            for r, ids in zip(active, drafted, strict=True):
                round_.token_ids[r] += ids
            return
        logits, features = self.native.logits(rows, starts, tokens, states)
        self.lane.draw(round_, active, logits, 0)
        still = list(range(len(active)))
        for number in range(1, max(counts)):
            kept = [i for i, at in enumerate(still) if counts[at] > number]
            still, fed = [still[i] for i in kept], features.split(1)
            behind = [starts[at] + len(tokens[at]) - 1 + number for at in still]
            newest = [round_.token_ids[active[at]][-1:] for at in still]
            logits, features = self.native.logits(
                [rows[at] for at in still], behind, newest, [fed[i] for i in kept], projected=True
            )
            self.lane.draw(round_, [active[at] for at in still], logits, number)

    def take(self, slots: Sequence[int]) -> tuple[list[int], list[int], list[list[int]], list[torch.Tensor]]:
        """Rows, first positions, tokens and states of what waits, after what is longer than a call is consumed."""
        cache, of = self.lane.cache, self.lane.pairs.of
        for slot in slots:
            while len(of[slot].token_ids) > _CHUNK:
                start = of[slot].start
                ids, states = of[slot].take(_CHUNK)
                self.native.chain([cache.row_of[slot]], [start], [ids], [states], [0])
        starts = [of[slot].start for slot in slots]
        taken = [of[slot].take() for slot in slots]
        for slot in slots:
            cache.length_of[slot] = of[slot].start
        return (
            [cache.row_of[slot] for slot in slots],
            starts,
            [ids for ids, _ in taken],
            [states for _, states in taken],
        )
