"""The MLP speculator: each step reads the token before it and the state that the step before left."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.drafts.run.sampling import DraftRound
from specdec.speculators.base import Step
from specdec.speculators.state_heads import StateHeadsSpeculator, wanting


class MLPSpeculator(StateHeadsSpeculator):
    """Source: arXiv 2404.19124, as a chain."""

    def draft(self, drafts: DraftRound, features: torch.Tensor, step: Step, counts: Sequence[int]) -> None:
        rows, tokens = list(range(len(counts))), step.host("last_sampled")
        for number in range(max(counts)):
            going = wanting(counts, number)
            kept = [rows.index(r) for r in going]
            token_ids = torch.tensor([tokens[place] for place in kept], device=features.device)
            hidden = self.network(self.network.inputs(token_ids, features[kept], step=number), step=number)
            tokens = self.draw(drafts, going, self.network.logits(hidden, number), number)
            rows, features = going, self.network.feedback(hidden, number)
