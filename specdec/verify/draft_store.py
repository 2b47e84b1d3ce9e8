"""Keeps what each draft token was drawn from, from drafting until its verification."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.verify.draft_laws import DenseDraftLogits


class DraftLogitsStore:
    """Draft logits per request slot and step, before temperature, in the dtype they were drawn from.

    Memory is ``max_requests * k * vocab_size`` elements, allocated at the first write: speculators that only draft
    greedily never pay for it. Slots are checked: reading a step that this round did not write is an error, so no
    request is ever verified against another's law or against zeros.
    """

    def __init__(self, max_requests: int, k: int) -> None:
        self.max_requests, self.k = max_requests, k
        self._logits: torch.Tensor | None = None
        self._probs = torch.full((max_requests, k), float("nan"), dtype=torch.float64)
        self._written = [0] * max_requests

    @staticmethod
    def num_bytes(max_requests: int, k: int, vocab_size: int, dtype: torch.dtype) -> int:
        """Size of the store once it is in use."""
        return max_requests * k * vocab_size * dtype.itemsize

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return 0 if self._logits is None else self._logits.numel() * self._logits.element_size()

    def begin(self, slots: Sequence[int]) -> None:
        """Forget the drafts of these slots: a new round, or a new request in the slot."""
        for slot in slots:
            self._written[slot] = 0

    def write(self, slots: Sequence[int], step: int, logits: torch.Tensor, probs: torch.Tensor | None = None) -> None:
        """Store the logits [R, V] that draft ``step`` of these slots was drawn from, and q of the drawn tokens [R]."""
        if self._logits is None:
            shape = (self.max_requests, self.k, logits.shape[-1])
            self._logits = torch.empty(shape, dtype=logits.dtype, device=logits.device)
        if logits.dtype != self._logits.dtype or logits.shape[-1] != self._logits.shape[-1]:
            raise ValueError(
                f"draft logits {logits.dtype} of {logits.shape[-1]} tokens do not fit the store of {self._logits.dtype} "
                f"and {self._logits.shape[-1]} tokens; rounding them would verify against another law"
            )
        for slot in slots:
            if self._written[slot] != step:
                raise ValueError(
                    f"slot {slot} writes draft step {step} after {self._written[slot]} steps; begin a round"
                )
            self._written[slot] = step + 1
        self._logits[list(slots), step] = logits
        self._probs[list(slots), step] = float("nan") if probs is None else probs.double().cpu()

    def laws(self, slots: Sequence[int]) -> torch.Tensor | None:
        """Logits [R, k, V] of slots, as a view where they are neighbours; None while nothing was written."""
        if self._logits is None:
            return None
        first, count = slots[0], len(slots)
        if list(slots) == list(range(first, first + count)):
            return self._logits[first : first + count]
        return self._logits[list(slots)]

    def read(self, slots: Sequence[int], num_drafts: Sequence[int]) -> DenseDraftLogits:
        """Laws of R requests, in the order of ``slots``; rows beyond a request's drafts are unspecified."""
        for slot, count in zip(slots, num_drafts, strict=True):
            if count > self._written[slot]:
                raise ValueError(f"slot {slot} verifies {count} drafts but only {self._written[slot]} were stored")
        if self._logits is None:
            raise ValueError("no draft logits were stored; pass draft_laws=None for one-hot drafts")
        index = list(slots)
        return DenseDraftLogits(self._logits[index], self._probs[index])
