"""Several speculators with a priority: each request takes the drafts of the first that has any for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from specdec.config.speculative import SpeculativeConfig
from specdec.engine.k_schedule import KSchedule
from specdec.speculators.base import BaseSpeculator, Drafts, ProposeBatch, TargetHandle
from specdec.speculators.init import init_speculator


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
        wanted = batch.num_drafts.clamp(max=self.num_speculative_tokens)
        merged = Drafts(torch.full((len(wanted), self.num_speculative_tokens), -1, device=self.device))
        for link in self.links:
            open_ = merged.token_ids[:, 0] < 0
            limit = min(allowed(link, len(wanted)), self.num_speculative_tokens)
            asked = torch.where(open_, wanted.clamp(max=limit), torch.zeros_like(wanted))
            merged = _merge(merged, link.propose(replace(batch, num_drafts=asked)), open_)
        return merged


def allowed(link: BaseSpeculator, batch_size: int) -> int:
    """Drafts of a member in a batch of this size."""
    entries = link.config.get("options.num_speculative_tokens_per_batch_size")
    return KSchedule(link.num_speculative_tokens, entries)(batch_size)


def _merge(held: Drafts, new: Drafts, rows: torch.Tensor) -> Drafts:
    """``held`` with the drafts of ``rows`` [R] bool taken from ``new``; columns beyond held's width are dropped."""
    width = held.token_ids.shape[1]
    ids = torch.where(rows[:, None], _fitted(new.token_ids, width, -1), held.token_ids)
    logits = held.logits
    if new.logits is not None:
        law = _fitted(new.logits, width, 0.0)
        logits = one_hot(held.token_ids, law) if logits is None else logits
        size = max(law.shape[-1], logits.shape[-1])
        logits = torch.where(rows[:, None, None], _widened(law, size), _widened(logits, size))
    elif logits is not None:
        logits = torch.where(rows[:, None, None], one_hot(ids, logits), logits)
    confidences = held.confidences
    if new.confidences is not None or confidences is not None:
        ours = torch.ones_like(ids, dtype=torch.float32) if confidences is None else confidences
        theirs = torch.ones_like(ours) if new.confidences is None else _fitted(new.confidences, width, 0.0)
        confidences = torch.where(rows[:, None], theirs, ours)
    return Drafts(ids, logits, confidences)


def one_hot(token_ids: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Logits shaped and typed like ``like`` [R, K, V] that put everything on ``token_ids`` [R, K]."""
    size = max(like.shape[-1], int(token_ids.max()) + 1)
    out = like.new_full((*token_ids.shape, size), float("-inf"))
    return out.scatter_(-1, token_ids.clamp(min=0)[..., None], 0.0)


def _fitted(values: torch.Tensor, width: int, fill: float) -> torch.Tensor:
    """[R, width, ...]: columns cut, or added with ``fill``."""
    if values.shape[1] >= width:
        return values[:, :width]
    missing = values.new_full((values.shape[0], width - values.shape[1], *values.shape[2:]), fill)
    return torch.cat((values, missing), dim=1)


def _widened(logits: torch.Tensor, size: int) -> torch.Tensor:
    """The same laws over a larger vocabulary."""
    return torch.nn.functional.pad(logits, (0, size - logits.shape[-1]), value=float("-inf"))
