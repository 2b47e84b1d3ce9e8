"""Several speculators with a priority: each request takes the drafts of the first that has any for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.model.handle import TargetHandle
from specdec.speculators.base import BaseSpeculator, Drafts, Needs, Step
from specdec.speculators.init import init_speculator
from specdec.speculators.k_schedule import KSchedule
from specdec.verify.draft_laws import candidate_logits, full_logits


class ChainSpeculator(BaseSpeculator):
    """Asks ``config.members`` in order; a later one drafts only for requests that the earlier ones left without drafts.

    All of them follow every request, so that each is ready when its turn comes. Drafts of one round may come from
    different speculators in different requests, never within one request. Members that cost nothing may draft where dear
    ones would not pay.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device, req_states: Any | None = None) -> None:
        super().__init__(config, device)
        self.links: list[BaseSpeculator] = [init_speculator(link, device, req_states) for link in config.members]

    @property
    def costs_nothing(self) -> list[bool]:
        """Which members read no weights."""
        return [link.config.get("resources.draft_pass_bytes") == 0 for link in self.links]

    def load(self, target: TargetHandle) -> None:
        for link in self.links:
            link.load(target)

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        for link in self.links:
            link.start(slot, prompt_token_ids)

    def finish(self, slot: int) -> None:
        for link in self.links:
            link.finish(slot)

    @property
    def needs(self) -> Needs:
        return reduce(or_, (link.needs for link in self.links), Needs())

    def observe(self, step: Step) -> None:
        for link in self.links:
            link.observe(step)

    def close(self) -> None:
        for link in self.links:
            link.close()

    def propose(self, step: Step) -> Drafts:
        k = self.num_speculative_tokens
        wanted = {False: [min(number, k) for number in step.host("num_drafts")]}
        wanted[True] = wanted[False] if step.num_free is None else [min(number, k) for number in step.num_free]
        rows: list[list[int]] = [[] for _ in wanted[False]]
        free = [False] * len(rows)
        proposals: list[Drafts] = []
        chosen: list[tuple[Drafts, int] | None] = [None] * len(rows)  # whose row of which proposal a request takes
        for link, costs_nothing in zip(self.links, self.costs_nothing, strict=True):
            limit, most = allowed(link, step.batch_size or len(rows)), wanted[costs_nothing]
            asked = [r for r, row in enumerate(rows) if not row and min(most[r], limit) > 0]
            if not asked:
                continue
            proposals.append(link.propose(step.only(asked, [min(most[r], limit) for r in asked])))
            for at, (r, row) in enumerate(zip(asked, proposals[-1].rows(), strict=True)):
                if row:
                    rows[r], chosen[r], free[r] = row[:k], (proposals[-1], at), costs_nothing
        confidences = None
        if any(proposal.confidences is not None for proposal in proposals):
            confidences = [_confidences(drafts, k) for drafts in chosen]
        lists = {"token_ids": rows, "confidences": confidences}
        laws = _laws(proposals, chosen, rows, k)
        return Drafts.of_lists(lists, logits=laws, free=free, width=k, device=self.device)


def allowed(link: BaseSpeculator, batch_size: int) -> int:
    """Drafts of a member in a batch of this size."""
    entries = link.config.get("options.num_speculative_tokens_per_batch_size")
    return KSchedule(link.num_speculative_tokens, entries)(batch_size)


def _confidences(chosen: tuple[Drafts, int] | None, k: int) -> list[float]:
    """[k] of a row; nan for drafts whose speculator says nothing."""
    if chosen is None or chosen[0].confidences is None:
        return [math.nan] * k
    drafts, row = chosen
    return list(drafts.host("confidences")[row][:k])


def _laws(
    proposals: Sequence[Drafts], chosen: Sequence[tuple[Drafts, int] | None], rows: Sequence[Sequence[int]], k: int
) -> torch.Tensor | None:
    """Logits [R, k, V] of the rows' drafts, one-hot where their speculator gives none; None when no speculator does."""
    held = [drafts.logits for drafts in proposals if drafts.logits is not None]
    if not held:
        return None
    size = max(1 + max((token for row in rows for token in row), default=0), *(law.shape[-1] for law in held))
    laws = candidate_logits(held[0]).new_full((len(rows), k, size), float("-inf"))
    for r, (taken, row) in enumerate(zip(chosen, rows, strict=True)):
        if taken is not None and taken[0].logits is not None:
            law = full_logits(taken[0].logits[taken[1], :k])
            laws[r, : len(law), : law.shape[-1]] = law
        elif row:
            laws[r, list(range(len(row))), list(row)] = 0.0
    return laws
