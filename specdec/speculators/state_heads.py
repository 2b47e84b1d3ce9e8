"""Speculators whose heads read the target's newest state and nothing else: no keys and values, nothing kept between rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from specdec.drafts.run.runner import DraftRunner
from specdec.drafts.run.sampling import DraftRound, DraftSampling
from specdec.drafts.run.vocabulary import ReducedVocabulary
from specdec.speculators.base import BaseSpeculator, Drafts, Step, TargetHandle
from specdec.speculators.init import load_network


class StateHeadsSpeculator(BaseSpeculator):
    """Runs the heads that the record names on the state of the newest token that the target consumed.

    Raises ``DraftError`` at ``load`` for a checkpoint that cannot be read or does not fit.
    """

    network: Any

    def load(self, target: TargetHandle) -> None:
        self.runner = DraftRunner.of(target, self.config)
        self.network = load_network(self.config).load(self.config, target).eval().requires_grad_(False)
        self.dtype = next(self.network.parameters()).dtype
        self.sampling = DraftSampling(self.config, self.runner.device)
        ids = self.network.to_target
        self.vocabulary = None if ids is None else ReducedVocabulary(ids, target.vocab_size)

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        self.runner.start(slot)

    def finish(self, slot: int) -> None:
        self.runner.finish(slot)

    @torch.inference_mode()
    def propose(self, step: Step) -> Drafts:
        assert step.states is not None and step.states.last is not None
        rejected, positions = step.host("num_rejected"), step.host("positions")
        newest = [end - 1 - behind for end, behind in zip(step.host("row_offsets")[1:], rejected, strict=True)]
        drafts = self.runner.round(self.sampling, step, [positions[row] + 2 for row in newest])
        counts = [min(count, self.num_speculative_tokens) for count in step.host("num_drafts")]
        self.draft(drafts, self.network.features(step.states.last[newest].to(self.dtype)), step, counts)
        return drafts.drafts()

    @abstractmethod
    def draft(self, drafts: DraftRound, features: torch.Tensor, step: Step, counts: Sequence[int]) -> None:
        """Draw ``counts[r]`` drafts of each request r from its feature [R, F]."""

    def draw(self, drafts: DraftRound, rows: Sequence[int], logits: torch.Tensor, number: int) -> list[int]:
        """Draw draft ``number`` of the requests ``rows`` from logits [len(rows), V_d] of the heads."""
        return drafts.draw(rows, logits if self.vocabulary is None else self.vocabulary.to_target(logits), number)


def wanting(counts: Sequence[int], number: int) -> list[int]:
    """Requests that want draft ``number`` (0-based)."""
    return [r for r, count in enumerate(counts) if count > number]
