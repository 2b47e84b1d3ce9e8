"""Medusa: one head a draft, all on the same state."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.drafts.run.sampling import DraftRound
from specdec.speculators.base import Step
from specdec.speculators.state_heads import StateHeadsSpeculator, wanting


class MedusaSpeculator(StateHeadsSpeculator):
    """Source: arXiv 2401.10774, as a chain: head i drafts token i + 1, whatever the heads before it drafted.

    With standard verification this is lossless; the tree and the typical acceptance of the paper are not made here.
    """

    def draft(self, drafts: DraftRound, features: torch.Tensor, step: Step, counts: Sequence[int]) -> None:
        logits = self.network.all_logits(features, max(counts))  # [R, k, V_d]
        for number in range(max(counts)):
            rows = wanting(counts, number)
            self.draw(drafts, rows, logits[rows, number], number)
