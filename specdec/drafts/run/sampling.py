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
        token_ids: list[int] = self._choose(rows, logits, number).tolist()
        if self.sampling.keeps_laws:
            self.store.write([self.slots[r] for r in rows], number, logits)
        self.add(rows, token_ids)
        return token_ids

    def _choose(self, rows: Sequence[int], logits: torch.Tensor, number: int) -> torch.Tensor:
        """A column [len(rows)] of each row of logits."""
        if self.is_greedy:
            return logits.argmax(-1)
        columns = ([column[r] for r in rows] for column in (self.temperature, self.seeds, self.starts))
        temperature, seeds, starts = columns
        options = {"step": number, "coupled": self.sampling.coupled}
        return draw_drafts(logits, temperature=temperature, seeds=seeds, starts=starts, **options).token_ids

    def draw_among(
        self, rows: Sequence[int], scores: torch.Tensor, ids: torch.Tensor | None, vocab_size: int, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw draft ``number`` among candidates: scores [len(rows), M], the target's ids of the columns [len(rows), M] or [M].

        Gives the tokens and the columns they came from [len(rows)]. No ids: column i is token i.
        """
        if ids is not None and self.sampling.coupled and not self.is_greedy:  # the target's noise runs over its own ids
            columns = ids.expand(len(rows), -1).long()
            full = scores.new_full((len(rows), vocab_size), -torch.inf).scatter_(1, columns, scores)
            tokens = torch.tensor(self.draw(rows, full, number), device=scores.device)
            return tokens, (columns == tokens[:, None]).int().argmax(-1)
        choices = self._choose(rows, scores, number)
        tokens = choices if ids is None else ids.expand(len(rows), -1).gather(1, choices[:, None])[:, 0].long()
        self.add(rows, tokens.tolist())
        if self.sampling.keeps_laws:
            self.store.write([self.slots[r] for r in rows], number, scores, ids=ids, vocab_size=vocab_size)
        return tokens, choices

    def add_confidences(self, rows: Sequence[int], values: Sequence[float]) -> None:
        """Confidences of the next draft of some requests."""
        self.confidences = self.confidences or [[] for _ in self.slots]
        for r, value in zip(rows, values, strict=True):
            self.confidences[r].append(value)

    def drafts(self) -> Drafts:
        """What was drawn; laws stay in the store until the slot's next round."""
        width = self.sampling.width
        laws = self.store.laws(self.slots) if self.sampling.keeps_laws else None
        lists = {"token_ids": self.token_ids, "confidences": self.confidences}
        return Drafts.of_lists(lists, logits=laws, logits_stay=True, width=width, device=self.sampling.device)
