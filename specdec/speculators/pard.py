"""A draft model trained with mask tokens drafts all tokens in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.causal_lm import DraftSequence
from specdec.drafts.run.sampling import DraftRound
from specdec.speculators.draft_model import DraftModelSpeculator
from specdec.speculators.init import SpeculatorError


class PardSpeculator(DraftModelSpeculator):
    """Feeds the committed tokens and k - 1 mask tokens, and reads draft i from row i. Source: arXiv 2504.18583.

    The k laws depend on the committed tokens only, so each draft is drawn independently; verification is the same. The
    cache entries of mask tokens are overwritten by the next round.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        super().__init__(config, device)
        mask = config.get("draft.mask_token_id", config.get("draft.pard_token"))
        if mask is None:
            raise SpeculatorError(
                "the draft names no mask token; add pard_token to its config.json, or use method draft_model"
            )
        self.mask_token_id = int(mask)

    def draft_rounds(self, round_: DraftRound, sequences: Sequence[DraftSequence], counts: Sequence[int]) -> None:
        # rows of one forward need equally many mask tokens
        for count in sorted(set(counts) - {0}):
            active = [r for r, wanted in enumerate(counts) if wanted == count]
            chosen = [sequences[r] for r in active]
            for sequence in chosen:
                sequence.drafts = [self.mask_token_id] * (count - 1)
            logits = self.draft.logits(chosen)
            for number in range(count):
                self.draw(round_, active, logits[:, number], number)
