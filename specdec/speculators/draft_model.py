"""A smaller language model drafts from its own KV cache, one token after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.causal_lm import DraftLanguageModel, DraftSequence
from specdec.drafts.vocabulary import SharedPrefix, VocabularyMap, intersect
from specdec.model.accelerate import accelerate, acceleration
from specdec.model.handle import TargetHandle
from specdec.speculators.base import BaseSpeculator, Drafts, Step
from specdec.speculators.coupling import couples_drafts
from specdec.speculators.history import TokenHistory, committed
from specdec.verify.drafting import draw_drafts

_PROBABILISTIC = "probabilistic"
_DEFAULT_MAX_NUM_SEQS = 8


class DraftModelSpeculator(BaseSpeculator):
    """Drafts with an independent causal LM. Source: arXiv 2211.17192, 2302.01318.

    Drafts are argmaxes (one-hot), or with ``draft_sample_method: probabilistic`` drawn at the request's temperature,
    and then ``Drafts.logits`` holds what they were drawn from. Requests that want no draft cost nothing: the draft
    catches up when they want one again. Sequences longer than the draft allows are not drafted for.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device, req_states: Any | None = None) -> None:
        super().__init__(config, device)
        self.max_rows = getattr(req_states, "max_num_seqs", None) or config.get("engine.max_num_seqs")
        sample = config.get("verification.draft_sample_method") or config.get("options.draft_sample_method")
        self.probabilistic = sample == _PROBABILISTIC
        self.coupled = couples_drafts(config)
        self.history = TokenHistory()
        self.draft: DraftLanguageModel
        self.vocabulary: VocabularyMap

    def load(self, target: TargetHandle) -> None:
        config = self.config
        heterogeneous = bool(config.get("options.use_heterogeneous_vocab"))
        self.draft = DraftLanguageModel.load(
            config.get("draft.model") or config.get("options.model"),
            dtype=config.get("draft.dtype") or target.dtype,
            device=self.device,
            tokenizer=None if heterogeneous else target.tokenizer,
            max_rows=self.max_rows or _DEFAULT_MAX_NUM_SEQS,
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

    def propose(self, batch: Step) -> Drafts:
        rows, width = batch.host("slots"), self.num_speculative_tokens
        counts = [
            min(wanted, width, self.draft.room(self.draft.sequences[slot]))
            for slot, wanted in zip(rows, batch.host("num_drafts"), strict=True)
        ]
        drafts: list[list[int]] = [[] for _ in rows]
        stored: list[list[torch.Tensor]] = [[] for _ in rows]
        sequences = [self.draft.sequences[slot] for slot in rows]
        self.draft_rounds(batch, sequences, counts, drafts, stored)
        logits = self._stacked(stored, width)
        return Drafts.of_lists({"token_ids": drafts}, logits=logits, width=width, device=self.device)

    def draft_rounds(
        self,
        batch: Step,
        sequences: Sequence[DraftSequence],
        counts: Sequence[int],
        drafts: list[list[int]],
        stored: list[list[torch.Tensor]],
    ) -> None:
        """Append ``counts[r]`` tokens to ``drafts[r]``, and the logits they were drawn from to ``stored[r]``."""
        for step in range(max(counts, default=0)):
            active = [r for r, count in enumerate(counts) if count > step]
            logits = self.draft.logits([sequences[r] for r in active])[:, -1]
            for r, token in zip(active, self.draw(batch, active, logits, step, stored), strict=True):
                drafts[r].append(token)
                sequences[r].token_ids += self.vocabulary.to_draft([token])

    def draw(
        self,
        batch: Step,
        rows: Sequence[int],
        logits: torch.Tensor,
        step: int,
        stored: list[list[torch.Tensor]],
    ) -> list[int]:
        """Draft number ``step`` of some requests of the batch from the draft's ``logits`` [len(rows), V_draft]."""
        logits = self.vocabulary.to_target(logits)
        slots, temperature, seeds = (batch.host(name) for name in ("slots", "temperature", "seeds"))
        sampled = self.probabilistic or self.coupled
        drawn = draw_drafts(
            logits,
            temperature=[temperature[r] if sampled else 0.0 for r in rows],
            seeds=[seeds[r] for r in rows],
            starts=[len(self.history.tokens[slots[r]]) for r in rows],
            step=step,
            coupled=self.coupled,
        )
        if self.probabilistic and not self.coupled:  # coupled verification looks at no law
            for row, values in zip(rows, logits, strict=True):
                stored[row].append(values)
        return drawn.token_ids.tolist()

    def _stacked(self, stored: list[list[torch.Tensor]], width: int) -> torch.Tensor | None:
        first = next((values for row in stored for values in row), None)
        if first is None:
            return None
        out = first.new_zeros(len(stored), width, first.shape[-1])
        for r, row in enumerate(stored):
            if row:
                out[r, : len(row)] = torch.stack(row)
        return out
