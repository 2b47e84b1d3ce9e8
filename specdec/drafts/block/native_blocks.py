"""Rounds of a block lane in the native kernels: context and block are one call each, greedy walks among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.run.sampling import DraftRound

if TYPE_CHECKING:
    from specdec.drafts.block.lane import BlockLane

_CHUNK = 512  # positions of one write


class NativeBlocks:
    """Runs what waits in a block lane, with the lane's pairs, rows and walks."""

    def __init__(self, lane: BlockLane, native: NativeDraft) -> None:
        self.lane, self.native = lane, native

    def block(self, round_: DraftRound, active: Sequence[int], counts: Sequence[int]) -> None:
        """Draft a block for each of the requests ``active``, and keep its first ``counts`` drafts."""
        lane, native, network = self.lane, self.native, self.lane.network
        slots = [round_.slots[r] for r in active]
        anchors = [lane.pairs.of[slot].token_ids[-1] for slot in slots]
        newest = self._write_context(slots)
        rows, starts = [lane.cache.row_of[slot] for slot in slots], [lane.pairs.of[slot].start for slot in slots]
        tokens = [[anchor, *[network.mask_token_id] * (lane.rows - 1)] for anchor in anchors]
        if not (native.parts.walks and round_.is_greedy and not round_.sampling.keeps_laws):
            hidden = native.hidden(rows, starts, tokens, [lane.rows] * len(rows)).view(len(rows), lane.rows, -1)
            last = network.features(torch.stack(newest))
            lane.walk(round_, active, counts, hidden, torch.tensor(anchors), last)
            return
        kept = [lane.rows - (not network.anchor_first)] * len(rows)
        nothing, confident = [newest[0][None][:0]] * len(rows), native.parts.confidence is not None
        ids, chances = native.block(rows, starts, tokens, nothing, kept, confident)
        for r, count, drafted in zip(active, counts, ids, strict=True):
            round_.token_ids[r] += drafted[:count]
        for number in range(max(counts) if chances is not None else 0):
            still = [i for i, count in enumerate(counts) if count > number]
            round_.add_confidences([active[i] for i in still], [chances[i][number] for i in still])  # type: ignore[index]

    def _write_context(self, slots: Sequence[int]) -> list[torch.Tensor]:
        """Write what waits of these slots; the target's states [S] at each newest position."""
        cache, of = self.lane.cache, self.lane.pairs.of
        for slot in slots:
            while len(of[slot].token_ids) > _CHUNK:
                start, (_, states) = of[slot].start, of[slot].take(_CHUNK)
                self.native.write_context([cache.row_of[slot]], [start], [states])
        starts = [of[slot].start for slot in slots]
        states = [of[slot].take()[1] for slot in slots]
        self.native.write_context([cache.row_of[slot] for slot in slots], starts, states)
        for slot in slots:
            cache.length_of[slot] = of[slot].start
        return [rows[-1] for rows in states]
