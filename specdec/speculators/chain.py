"""Several speculators with a priority: each request takes the drafts of the first that has any for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.model.handle import TargetHandle
from specdec.speculators.base import BaseSpeculator, Drafts, ProposeBatch
from specdec.speculators.init import init_speculator
from specdec.speculators.k_schedule import KSchedule


class ChainSpeculator(BaseSpeculator):
    """Asks ``config.members`` in order; a later one drafts only for requests that the earlier ones left without drafts.

    All of them follow every request, so that each is ready when its turn comes. Drafts of one round may come from
    different speculators in different requests, never within one request.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device, req_states: Any | None = None) -> None:
        super().__init__(config, device)
        self.links: list[BaseSpeculator] = [init_speculator(link, device, req_states) for link in config.members]

    def load(self, target: TargetHandle) -> None:
        for link in self.links:
            link.load(target)

    def start_request(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        for link in self.links:
            link.start_request(slot, prompt_token_ids)

    def finish_request(self, slot: int) -> None:
        for link in self.links:
            link.finish_request(slot)

    def propose(self, batch: ProposeBatch) -> Drafts:
        k = self.num_speculative_tokens
        wanted = [min(number, k) for number in batch.host("num_drafts")]
        rows: list[list[int]] = [[] for _ in wanted]
        proposals: list[Drafts] = []
        source = [-1] * len(rows)  # index of the proposal that a row was taken from
        for number, link in enumerate(self.links):
            limit = allowed(link, len(rows))
            asked = [0 if row else min(most, limit) for row, most in zip(rows, wanted, strict=True)]
            proposals.append(link.propose(batch.wanting(asked)))
            for r, row in enumerate(proposals[-1].rows()):
                if row and not rows[r]:
                    rows[r], source[r] = row[:k], number
        chosen = [proposals[i] if i >= 0 else None for i in source]
        confidences = None
        if any(proposal.confidences is not None for proposal in proposals):
            confidences = [_confidences(drafts, r, k) for r, drafts in enumerate(chosen)]
        lists = {"token_ids": rows, "confidences": confidences}
        return Drafts.of_lists(lists, logits=_laws(proposals, chosen, rows, k), width=k, device=self.device)


def allowed(link: BaseSpeculator, batch_size: int) -> int:
    """Drafts of a member in a batch of this size."""
    entries = link.config.get("options.num_speculative_tokens_per_batch_size")
    return KSchedule(link.num_speculative_tokens, entries)(batch_size)


def _confidences(drafts: Drafts | None, row: int, k: int) -> list[float]:
    """[k] of a row; nan for drafts whose speculator says nothing."""
    if drafts is None or drafts.confidences is None:
        return [math.nan] * k
    return list(drafts.host("confidences")[row][:k])


def _laws(
    proposals: Sequence[Drafts], chosen: Sequence[Drafts | None], rows: Sequence[Sequence[int]], k: int
) -> torch.Tensor | None:
    """Logits [R, k, V] of the rows' drafts, one-hot where their speculator gives none; None when no speculator does."""
    held = [drafts.logits for drafts in proposals if drafts.logits is not None]
    if not held:
        return None
    size = max(1 + max((token for row in rows for token in row), default=0), *(law.shape[-1] for law in held))
    laws = held[0].new_full((len(rows), k, size), float("-inf"))
    for r, (drafts, row) in enumerate(zip(chosen, rows, strict=True)):
        if drafts is not None and drafts.logits is not None:
            law = drafts.logits[r, :k]
            laws[r, : len(law), : law.shape[-1]] = law
        elif row:
            laws[r, list(range(len(row))), list(row)] = 0.0
    return laws
