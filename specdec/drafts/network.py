"""What every draft network gives its runner: one shape for drafts that read the target's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.drafts.native.parts import DraftParts
    from specdec.model.handle import TargetHandle


class DraftNetwork(nn.Module):
    """The weights of a draft checkpoint, in plain torch: the reference of every faster path.

    A pair at position P is the token at P + 1 with the target's state at P; its output drafts the token at P + 2, and
    its position id is P. Token ids are the target's, also where the head has fewer.
    """

    num_layers: int  # decoder layers with keys and values of their own; 0 = none
    feature_size: int  # width F of the feature of a pair
    vocab_size: int  # rows of the head
    to_target: torch.Tensor | None = None  # [vocab_size] the target's id of each row of the head; None = the same ids
    window: int | None = None  # positions that a layer sees, itself included; None = all

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        """Read the checkpoint of a finalized configuration and share what the wiring shares with the target.

        Raises ``DraftError`` for a checkpoint that cannot be read or does not fit; it names the file and the tensor.
        """
        raise NotImplementedError(f"{cls.__name__} loads no checkpoint")

    def features(self, states: torch.Tensor) -> torch.Tensor:
        """Features [N, F] of target states [N, S]; as they are unless the family projects them."""
        return states

    def inputs(self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """What enters the layers [..., X], of tokens [...] and features [..., F]; ``first`` marks position 0."""
        raise NotImplementedError(f"{type(self).__name__} makes no inputs")

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, step: int = 0) -> torch.Tensor:
        """The residual stream [R, W, H] that leaves the last layer, of inputs [R, W, X] at positions [R, W].

        ``cache``: keys and values as transformers caches take them, None = none. ``mask``: bool [R | 1, 1, W, KV],
        True = visible; None = causal over the inputs. ``step``: number of the draft, where modules differ.
        """
        raise NotImplementedError(f"{type(self).__name__} has no layers")

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        """Logits [N, vocab_size] of rows [N, H] that left the last layer; the final norm is part of it."""
        raise NotImplementedError(f"{type(self).__name__} has no head")

    def feedback(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        """The next step's features [N, F], of rows [N, H] that left the last layer; ``features`` is not applied."""
        return hidden

    def parts(self) -> DraftParts | None:
        """The modules that the methods above go through, for the native kernels; None where they do more."""
        return None
