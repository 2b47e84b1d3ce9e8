"""A smaller language model drafts from its own KV cache, one token after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.causal_lm import DraftLanguageModel, DraftSequence
from specdec.drafts.run.runner import DraftRunner
from specdec.drafts.run.sampling import DraftRound, DraftSampling
from specdec.drafts.run.vocabulary import SharedPrefix, VocabularyMap, intersect
from specdec.model.accelerate import accelerate, acceleration
from specdec.model.handle import TargetHandle
from specdec.speculators.base import BaseSpeculator, Drafts, Step
from specdec.speculators.history import TokenHistory, committed


class DraftModelSpeculator(BaseSpeculator):
    """Drafts with an independent causal LM. Source: arXiv 2211.17192, 2302.01318.

    Drafts are argmaxes (one-hot), or with ``draft_sample_method: probabilistic`` drawn at the request's temperature,
    and then ``Drafts.logits`` holds what they were drawn from. Requests that want no draft cost nothing: the draft
    catches up when they want one again. Sequences longer than the draft allows are not drafted for.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        super().__init__(config, device)
        self.sampling = DraftSampling(config, device)
        self.history = TokenHistory()
        self.draft: DraftLanguageModel
        self.vocabulary: VocabularyMap

    def load(self, target: TargetHandle) -> None:
        config = self.config
        heterogeneous = bool(config.get("options.use_heterogeneous_vocab"))
        self.draft = DraftLanguageModel.load(
            config.get("draft.model") or config.get("options.model"),
            dtype=config.get("draft.dtype") or target.dtype,
            tokenizer=None if heterogeneous else target.tokenizer,
            runner=DraftRunner.of(target, config),
            max_len=min(target.max_model_len, config.get("draft.max_model_len") or target.max_model_len),
        )
        model = self.draft.model
        if heterogeneous:
            self.vocabulary = intersect(target.tokenizer, model.tokenizer, target.vocab_size, model.vocab_size)
        else:
            self.vocabulary = SharedPrefix(target.vocab_size, model.vocab_size)
        report = acceleration(target.model)
        if report is not None and not report.reason:
            accelerate(model.model, max_batch=self.draft.cache.max_rows * (self.num_speculative_tokens + 1))

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        self.history.start(slot, prompt_token_ids)
        self.draft.start(slot, self.vocabulary.to_draft(self.history.tokens[slot]))

    def finish(self, slot: int) -> None:
        self.history.finish(slot)
        self.draft.finish(slot)

    def observe(self, step: Step) -> None:
        for settled in committed(step):
            if new := self.history.extend(settled):
                self.draft.sequences[settled.slot].commit(self.vocabulary.to_draft(new))

    def propose(self, step: Step) -> Drafts:
        slots, width = step.host("slots"), self.num_speculative_tokens
        sequences = [self.draft.sequences[slot] for slot in slots]
        counts = [
            min(wanted, width, self.draft.room(sequence))
            for wanted, sequence in zip(step.host("num_drafts"), sequences, strict=True)
        ]
        starts = [len(self.history.tokens[slot]) for slot in slots]
        round_ = self.draft.runner.round(self.sampling, step, starts)
        self.draft_rounds(round_, sequences, counts)
        return round_.drafts()

    def draft_rounds(self, round_: DraftRound, sequences: Sequence[DraftSequence], counts: Sequence[int]) -> None:
        """Draw ``counts[r]`` drafts of each request."""
        for number in range(max(counts, default=0)):
            active = [r for r, count in enumerate(counts) if count > number]
            logits = self.draft.logits([sequences[r] for r in active])[:, -1]
            for r, token in zip(active, self.draw(round_, active, logits, number), strict=True):
                sequences[r].token_ids += self.vocabulary.to_draft([token])

    def draw(self, round_: DraftRound, rows: Sequence[int], logits: torch.Tensor, number: int) -> list[int]:
        """Draft ``number`` of some requests from the draft's ``logits`` [len(rows), V_draft]."""
        return round_.draw(rows, self.vocabulary.to_target(logits), number)
