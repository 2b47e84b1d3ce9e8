"""The hook for structured output: which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@runtime_checkable
class TokenConstraint(Protocol):
    """A grammar, a schema or a word list, as a pure function of the tokens so far.

    It is asked for every verified row with the emitted tokens plus that row's own drafts, so a rejected draft leaves
    no trace, and it is never asked about a prefix that it has forbidden.
    """

    def allowed(self, prefix: Sequence[int]) -> torch.Tensor | None:
        """A boolean mask [V] of the tokens that may follow ``prefix`` (output tokens only); None = all.

        A mask shorter than the vocabulary forbids the rest; one without any True ends the request.
        """
