"""Runs a block draft: the context of accepted rows is written once, then each round is one pass and one walk."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.block.native_blocks import NativeBlocks
from specdec.drafts.block.network import BlockDraft
from specdec.drafts.run.lane import Lane
from specdec.drafts.run.runner import DraftRunner
from specdec.drafts.run.sampling import DraftRound
from specdec.model.batch import Batch, Padded
from specdec.model.step import Drafts, Needs, Step

_FEW = 16  # waiting positions that are written together with those of other requests
_CHUNK = 1024  # positions of one write


class BlockLane(Lane):
    """Nothing is ever rolled back: a block's keys and values stand behind the context, where the next round overwrites them.

    Only rows that were accepted reach the cache as context, so that nothing stale is ever in sight.
    """

    network: BlockDraft

    def __init__(self, runner: DraftRunner, network: BlockDraft, needs: Needs, config: SpeculativeConfig) -> None:
        self.rows = network.block_rows(config.num_speculative_tokens)
        self.spare = self.rows
        super().__init__(runner, network, needs, config)
        self.vocab_size = int(config.get("target.vocab_size") or network.vocab_size)

    @torch.inference_mode()
    def block(self, step: Step) -> Drafts:
        """Draft a block for each request; fewer drafts than its rows hold are its first ones."""
        counts, round_ = self.begin(step)
        row_of = self.cache.row_of
        active = sorted((r for r, count in enumerate(counts) if count), key=lambda r: row_of[round_.slots[r]])
        if active and (native := self.native) is not None:
            NativeBlocks(self, native).block(round_, active, [counts[r] for r in active])
        elif active:
            slots = [round_.slots[r] for r in active]
            ids = [self.pairs.of[slot].token_ids[-1] for slot in slots]
            last = self._write_context(slots)
            anchors = torch.tensor(ids, device=self.runner.device)
            starts = [self.pairs.of[slot].start for slot in slots]
            padded = self._padded(slots, self.network.block_ids(anchors, self.rows).tolist(), starts)
            x = self.network.inputs(padded.input_ids)
            hidden = self.network.norm(self.network(x, padded.positions, None, self.cache))
            self.walk(round_, active, [counts[r] for r in active], hidden, anchors, last)
        return round_.drafts()

    def walk(
        self,
        round_: DraftRound,
        active: Sequence[int],
        counts: Sequence[int],
        hidden: torch.Tensor,
        anchors: torch.Tensor,
        last: torch.Tensor,
    ) -> None:
        """Choose the drafts of the requests ``active`` from their blocks, one after the other."""
        walk = self.network.walk(hidden, anchors, last, max(counts))
        tokens, choices = anchors, torch.zeros_like(anchors)
        for number in range(max(counts)):
            confidence = walk.confidence(number, tokens)
            scores, ids = walk.row(number, tokens, choices)
            still = [i for i, count in enumerate(counts) if count > number]
            rows = [active[i] for i in still]
            if len(still) == len(active):
                tokens, choices = round_.draw_among(rows, scores, ids, self.vocab_size, number)
            else:  # those that have enough keep their last token, which nobody reads
                ids = ids[still] if ids is not None and ids.ndim == 2 else ids
                tokens, choices = tokens.clone(), choices.clone()
                tokens[still], choices[still] = round_.draw_among(rows, scores[still], ids, self.vocab_size, number)
            if confidence is not None:
                values = confidence.tolist()
                round_.add_confidences(rows, [values[i] for i in still])

    def _write_context(self, slots: Sequence[int]) -> torch.Tensor:
        """Write what waits of these slots; the features [R, H] of each newest position."""
        for slot in slots:
            pairs = self.pairs.of[slot]
            while len(pairs.token_ids) > _FEW:
                self._write([slot], min(_CHUNK, len(pairs.token_ids) - 1))
        return self._write(slots, None)[:, -1]

    def _write(self, slots: Sequence[int], count: int | None) -> torch.Tensor:
        """Write the first ``count`` waiting positions of each slot (None = all); their features [R, W, H], right-aligned."""
        starts = [self.pairs.of[slot].start for slot in slots]
        taken = [self.pairs.of[slot].take(count) for slot in slots]
        features = self._features(taken)
        padded = self._padded(slots, [ids for ids, _ in taken], starts)
        self.network.write_context(features, padded.positions, self.cache)
        for slot in slots:
            self.cache.length_of[slot] = self.pairs.of[slot].start
        return features

    def _padded(self, slots: Sequence[int], tokens: list[list[int]], starts: list[int]) -> Padded:
        """Tokens [R][n] from positions ``starts`` as the cache takes them; the slots stand in the order of their rows."""
        rows = [self.cache.row_of[slot] for slot in slots]
        nothing, dtype = [0] * len(rows), self.network.norm.weight.dtype
        batch = Batch([], tokens, starts, rows, nothing, [True] * len(rows), self.cache, self.layout, dtype)
        self.cache.plan = batch.padded.plan
        return batch.padded
