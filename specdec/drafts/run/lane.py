"""Runs one draft network over the requests of an engine: catch-up over true states, then chains or one pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.native.check import native_draft
from specdec.drafts.native.rounds import NativeRounds
from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.graphs import ChainGraphs
from specdec.drafts.run.pairs import PairBook
from specdec.drafts.run.runner import DraftRunner
from specdec.drafts.run.sampling import DraftRound, DraftSampling
from specdec.drafts.run.vocabulary import ReducedVocabulary
from specdec.model.attention import FULL, SLIDING, AttentionLayout
from specdec.model.batch import Batch
from specdec.model.step import Drafts, Needs, Step

_FEW = 8  # waiting pairs that may ride along in the forward of others
_CHUNK = 1024  # pairs of one catch-up forward


class Lane:
    """Draft KV of one network. Rows of accepted pairs are computed from true target states, whatever was drafted.

    What a chain writes behind them is provisional: the next round starts at the same positions and overwrites it.
    """

    spare = 0  # positions that a round may write behind the longest sequence

    def __init__(self, runner: DraftRunner, network: DraftNetwork, needs: Needs, config: SpeculativeConfig) -> None:
        self.runner, self.network, self.pairs = runner, network, PairBook(needs)
        self.sampling = DraftSampling(config, runner.device)
        self.max_len = min(runner.max_model_len, config.get("draft.max_model_len") or runner.max_model_len)
        self.cache = runner.cache(max(network.num_layers, 1), self.max_len + self.spare)
        kind = FULL if network.window is None else SLIDING
        self.layout = AttentionLayout(network.num_layers, (kind,), network.window, False, runner.device)
        to_target = network.to_target
        self.vocabulary = None if to_target is None else ReducedVocabulary(to_target, config.target.get("vocab_size"))

    def start(self, slot: int) -> None:
        """A request took the slot."""
        self.runner.start(slot)
        self.pairs.start(slot)

    def finish(self, slot: int) -> None:
        """The slot's request ended."""
        self.runner.finish(slot)
        self.pairs.finish(slot)

    def feed(self, step: Step) -> None:
        """Keep what a step settled; nothing is computed."""
        self.pairs.feed(step)

    @torch.inference_mode()
    def chain(self, step: Step) -> Drafts:
        """Draft token after token, each from the network's own feedback for the one before it."""
        counts, round_ = self.begin(step)
        active = [r for r, count in enumerate(counts) if count]
        if not active:
            return round_.drafts()
        if (native := self.native) is not None:
            NativeRounds(self, native).chain(round_, active, [counts[r] for r in active])
            return round_.drafts()
        hidden = self._catch_up([round_.slots[r] for r in active])
        if self.graphs is not None and round_.is_greedy and not round_.sampling.keeps_laws:
            rows = [self.cache.row_of[round_.slots[r]] for r in active]
            starts = [self.pairs.of[round_.slots[r]].start for r in active]
            for r, ids in zip(active, self.graphs.run(rows, hidden, starts, [counts[r] for r in active]), strict=True):
                round_.token_ids[r] += ids
            return round_.drafts()
        self.draw(round_, active, self.network.logits(hidden), 0)
        for number in range(1, max(counts)):
            still = [i for i, r in enumerate(active) if counts[r] > number]
            if len(still) < len(active):
                active, hidden = [active[i] for i in still], hidden[still]
            slots = [round_.slots[r] for r in active]
            features = self.network.feedback(hidden, number - 1)[:, None]
            tokens = [round_.token_ids[r][-1:] for r in active]
            starts = [self.pairs.of[slot].start - 1 + number for slot in slots]
            hidden = self._forward(slots, tokens, features, starts, number)[:, -1]
            self.draw(round_, active, self.network.logits(hidden, number), number)
        return round_.drafts()

    def prepare(self) -> None:
        """Build now what the first round would else wait for, and be taken for slow by."""
        _ = self.native

    @cached_property
    def native(self) -> NativeDraft | None:
        """The network in the CPU kernels, made and compared when first asked for; None = its torch modules run."""
        return native_draft(self.network, self.cache) if self.runner.device.type == "cpu" else None

    @cached_property
    def graphs(self) -> ChainGraphs | None:
        """Greedy chains as CUDA graphs, where there is such a device."""
        return ChainGraphs(self.network, self.cache, self.layout) if self.runner.device.type == "cuda" else None

    def begin(self, step: Step) -> tuple[list[int], DraftRound]:
        """Drafts of each request of a step, as far as the draft's own length allows, and their round."""
        ends = [self.pairs.of[slot].end for slot in step.host("slots")]
        width, room = self.sampling.width, self.max_len + 1
        wanted = step.host("num_drafts")
        counts = [max(0, min(count, width, room - end)) for count, end in zip(wanted, ends, strict=True)]
        return counts, self.runner.round(self.sampling, step, [end + 1 for end in ends])

    def draw(self, round_: DraftRound, rows: Sequence[int], logits: torch.Tensor, number: int) -> None:
        """Draft ``number`` of the requests ``rows`` from the head's logits [len(rows), V_draft]."""
        if self.vocabulary is None:
            round_.draw(rows, logits, number)
        elif round_.is_greedy and not round_.sampling.keeps_laws:
            round_.add(rows, self.vocabulary.target_ids(logits.argmax(-1).tolist()))
        else:
            round_.draw(rows, self.vocabulary.to_target(logits), number)

    def _catch_up(self, slots: Sequence[int]) -> torch.Tensor:
        """Consume all waiting pairs; what left the last layer at each newest one [R, H]."""
        self._shorten(slots)
        return self._consume(slots, None)[:, -1]

    def _shorten(self, slots: Sequence[int]) -> None:
        """Consume what is too long to ride along with others; the newest pair waits."""
        for slot in slots:
            pairs = self.pairs.of[slot]
            while len(pairs.token_ids) > _FEW:
                self._consume([slot], min(_CHUNK, len(pairs.token_ids) - 1))

    def _consume(self, slots: Sequence[int], count: int | None) -> torch.Tensor:
        """Run the first ``count`` waiting pairs of each slot (None = all); [R, W, H], aligned to the right."""
        starts = [self.pairs.of[slot].start for slot in slots]
        taken = [self.pairs.of[slot].take(count) for slot in slots]
        hidden = self._forward(slots, [ids for ids, _ in taken], self._features(taken), starts, 0)
        for slot in slots:
            self.cache.length_of[slot] = self.pairs.of[slot].start
        return hidden

    def _features(self, taken: Sequence[tuple[list[int], torch.Tensor]]) -> torch.Tensor:
        """Features [R, W, F] of pairs that wait no longer, aligned to the right."""
        counts = [len(ids) for ids, _ in taken]
        return self._aligned(self.network.features(torch.cat([states for _, states in taken])).split(counts))

    def _aligned(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Features [R, W, F] of parts [n_r, F], each at the right end of its row."""
        width = max(map(len, parts))
        if all(len(part) == width for part in parts):
            return torch.stack(list(parts))
        padded = parts[0].new_zeros(len(parts), width, parts[0].shape[-1])
        for row, part in zip(padded, parts, strict=True):
            row[width - len(part) :] = part
        return padded

    def _inputs(
        self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor, number: int
    ) -> torch.Tensor:
        """What enters the layers for draft ``number``; the same for all where one network drafts them."""
        return self.network.inputs(token_ids, features, first)

    def _forward(
        self, slots: Sequence[int], tokens: list[list[int]], features: torch.Tensor, starts: list[int], number: int
    ) -> torch.Tensor:
        """The network over tokens [R][n] with features [R, W, F] from positions ``starts``; [R, W, H] in that order."""
        rows = [self.cache.row_of[slot] for slot in slots]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        if is_sorted := order == list(range(len(rows))):
            chosen = features
        else:
            chosen = features[order]
            tokens, starts, rows = ([column[r] for r in order] for column in (tokens, starts, rows))
        nothing = [0] * len(rows)
        batch = Batch([], tokens, starts, rows, nothing, [True] * len(rows), self.cache, self.layout, chosen.dtype)
        padded = batch.padded
        self.cache.plan = padded.plan
        x = self._inputs(padded.input_ids, chosen, padded.positions == 0, number)
        hidden = self.network(x, padded.positions, padded.mask, self.cache, number)
        if is_sorted:
            return hidden
        back = torch.empty_like(hidden)
        back[order] = hidden
        return back
