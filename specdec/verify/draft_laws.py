"""The law each draft token was drawn from, in the three forms that speculators produce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from specdec.verify.row_law import RowLaw


class DraftLaws(Protocol):
    """Draft laws of R requests; None in place of an object means one-hot drafts."""

    def row(self, request: int, step: int, temperature: float) -> RowLaw:
        """The law of one draft step, over the draft vocabulary."""

    def prob(self, request: int, step: int) -> float | None:
        """q of the drawn token if it was kept, which spares reading the row of an accepted draft."""

    def dense(self) -> DenseDraftLogits:
        """The same laws as full logits."""


@dataclass(frozen=True)
class DenseDraftLogits:
    """Full draft logits, before temperature, exactly the values that the tokens were drawn from."""

    logits: torch.Tensor  # [R, K, V_draft], any float dtype
    token_probs: torch.Tensor | None = None  # [R, K] q of the drawn tokens where known, NaN where not

    def row(self, request: int, step: int, temperature: float) -> RowLaw:
        return RowLaw(self.logits[request, step], temperature)

    def prob(self, request: int, step: int) -> float | None:
        q = float("nan") if self.token_probs is None else float(self.token_probs[request, step])
        return None if q != q else q

    def dense(self) -> DenseDraftLogits:
        return self


@dataclass(frozen=True)
class TopKDraftLogits:
    """Draft laws supported on M candidates per step; other tokens have q = 0."""

    ids: torch.Tensor  # [R, K, M] int, -1 = unused entry
    logits: torch.Tensor  # [R, K, M], before temperature
    vocab_size: int

    def __getitem__(self, index: Any) -> TopKDraftLogits:
        """The same of some requests, or of some steps of one."""
        return TopKDraftLogits(self.ids[index], self.logits[index], self.vocab_size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the same laws as full logits."""
        return (*self.logits.shape[:-1], self.vocab_size)

    @property
    def dtype(self) -> torch.dtype:
        return self.logits.dtype

    def clone(self) -> TopKDraftLogits:
        """A copy that later rounds do not overwrite."""
        return TopKDraftLogits(self.ids.clone(), self.logits.clone(), self.vocab_size)

    def row(self, request: int, step: int, temperature: float) -> RowLaw:
        return RowLaw(self._scatter(self.ids[request, step], self.logits[request, step]), temperature)

    def prob(self, request: int, step: int) -> float | None:
        return None

    def dense(self) -> DenseDraftLogits:
        return DenseDraftLogits(self._scatter(self.ids, self.logits))

    def _scatter(self, ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        # one spare column receives the unused entries
        full = logits.new_full((*ids.shape[:-1], self.vocab_size + 1), -torch.inf)
        full.scatter_(-1, torch.where(ids < 0, self.vocab_size, ids).long(), logits)
        return full[..., : self.vocab_size]


def candidate_logits(laws: TopKDraftLogits | torch.Tensor) -> torch.Tensor:
    """Logits [..., M] of the tokens that may be drafted, all others having q = 0."""
    return laws if isinstance(laws, torch.Tensor) else laws.logits


def full_logits(laws: TopKDraftLogits | torch.Tensor) -> torch.Tensor:
    """Logits [..., V] over the vocabulary, -inf for tokens that are no candidates."""
    return laws if isinstance(laws, torch.Tensor) else laws.dense().logits


def dense_logits(laws: DraftLaws | torch.Tensor | None) -> torch.Tensor | None:
    """[R, K, V'] logits of any form of draft laws; None for one-hot drafts."""
    return laws if laws is None or isinstance(laws, torch.Tensor) else laws.dense().logits
