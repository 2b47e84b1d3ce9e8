"""P-EAGLE: an EAGLE-3 head that drafts all tokens in one pass, unknown pairs standing as placeholders."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.eagle3 import Eagle3Draft
from specdec.drafts.errors import DraftError
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.weights import Weights
from specdec.model.handle import TargetHandle


class PEagleDraft(Eagle3Draft):
    """A placeholder is the mask token with the feature of the learned state ``mask_hidden``. Source: arXiv 2602.01469."""

    def __init__(self, config: SpeculativeConfig, target: TargetHandle, weights: Weights) -> None:
        super().__init__(config, target, weights)
        token = config.draft.get("mask_token_id")
        if token is None:
            raise DraftError(
                f"{weights.location}: the config.json names no mask token (mask_token_id, ptd_token_id), "
                "so nothing can stand for an undrafted position; use method eagle3"
            )
        if not 0 <= token < target.vocab_size:
            raise DraftError(f"{weights.location}: mask token {token} is outside the target's {target.vocab_size} ids")
        self.mask_token_id: int = token
        state = weights.take("mask_hidden")  # stored flat, or with axes of length 1 in front
        if state.numel() != self.state_size:
            raise DraftError(
                f"{weights.location}: tensor mask_hidden has shape {list(state.shape)}, but {self.state_size} values are fused"
            )
        self.mask_hidden = nn.Parameter(state.reshape(1, -1), requires_grad=False)

    def placeholder(self) -> torch.Tensor:
        """The feature [1, F] of an undrafted position."""
        return self.features(self.mask_hidden)

    def parts(self) -> DraftParts:
        return replace(super().parts(), mask_feature=self.placeholder()[0])
