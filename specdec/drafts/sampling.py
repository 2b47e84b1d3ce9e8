"""Draws of a round of drafts, and what they were drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.model.step import Drafts, Step
from specdec.verify.coupling import couples_drafts
from specdec.verify.draft_store import DraftLogitsStore
from specdec.verify.drafting import draw_drafts

_PROBABILISTIC = "probabilistic"


class DraftSampling:
    """How a configuration draws drafts: argmaxes, draws whose laws are kept, or the target's own noise."""

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        sample = config.get("verification.draft_sample_method") or config.get("options.draft_sample_method")
        self.coupled = couples_drafts(config)
        self.draws = self.coupled or sample == _PROBABILISTIC
        # coupled verification looks at no law
        self.keeps_laws = self.draws and not self.coupled
        self.width, self.device = config.num_speculative_tokens, device


class DraftRound:
    """One round over R requests: draft after draft is drawn, of fewer and fewer requests."""

    def __init__(self, sampling: DraftSampling, step: Step, starts: Sequence[int], store: DraftLogitsStore) -> None:
        """``starts`` [R]: position of the first token that the round may emit."""
        self.sampling, self.starts, self.store = sampling, starts, store
        self.slots, self.seeds = step.host("slots"), step.host("seeds")
        self.temperature = step.host("temperature") if sampling.draws else [0.0] * len(self.slots)
        self.token_ids: list[list[int]] = [[] for _ in self.slots]
        self.confidences: list[list[float]] | None = None
        store.begin(self.slots)

    @property
    def is_greedy(self) -> bool:
        """Whether every draft of the round is an argmax."""
        return not any(self.temperature)

    def add(self, rows: Sequence[int], token_ids: Sequence[int]) -> None:
        """The next draft of some requests, chosen elsewhere."""
        for r, token in zip(rows, token_ids, strict=True):
            self.token_ids[r].append(token)

    def draw(self, rows: Sequence[int], logits: torch.Tensor, number: int) -> list[int]:
        """Draw draft ``number`` (0-based) of the requests ``rows`` from logits [len(rows), V] over the target's ids."""
        if self.is_greedy:
            drawn = logits.argmax(-1)
        else:
            columns = ([column[r] for r in rows] for column in (self.temperature, self.seeds, self.starts))
            temperature, seeds, starts = columns
            options = {"step": number, "coupled": self.sampling.coupled}
            drawn = draw_drafts(logits, temperature=temperature, seeds=seeds, starts=starts, **options).token_ids
        if self.sampling.keeps_laws:
            self.store.write([self.slots[r] for r in rows], number, logits)
        token_ids: list[int] = drawn.tolist()
        self.add(rows, token_ids)
        return token_ids

    def drafts(self) -> Drafts:
        """What was drawn; laws stay in the store until the slot's next round."""
        width = self.sampling.width
        laws = self.store.laws(self.slots) if self.sampling.keeps_laws else None
        lists = {"token_ids": self.token_ids, "confidences": self.confidences}
        return Drafts.of_lists(lists, logits=laws, logits_stay=True, width=width, device=self.sampling.device)
