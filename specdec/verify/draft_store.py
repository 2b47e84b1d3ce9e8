"""Keeps what each draft token was drawn from, from drafting until its verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec.verify.draft_laws import DenseDraftLogits, TopKDraftLogits


class DraftLogitsStore:
    """Draft logits per request slot and step, before temperature, in the dtype they were drawn from.

    Memory is ``max_requests * k`` rows of ``vocab_size`` elements, or of the M candidates that a draft is chosen among and
    their int32 ids, allocated at the first write: speculators that only draft greedily never pay for it. Slots are checked: reading a step that this round did not write is an error, so no
    request is ever verified against another's law or against zeros.
    """

    def __init__(self, max_requests: int, k: int) -> None:
        self.max_requests, self.k = max_requests, k
        self._logits: torch.Tensor | None = None
        self._ids: torch.Tensor | None = None  # [max_requests, k, M], or [1, 1, M] where they never change
        self._vocab_size = 0
        self._probs = torch.full((max_requests, k), float("nan"), dtype=torch.float64)
        self._written = [0] * max_requests

    @staticmethod
    def num_bytes(max_requests: int, k: int, vocab_size: int, dtype: torch.dtype) -> int:
        """Size of the store once it is in use."""
        return max_requests * k * vocab_size * dtype.itemsize

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return sum(t.numel() * t.element_size() for t in (self._logits, self._ids) if t is not None)

    def begin(self, slots: Sequence[int]) -> None:
        """Forget the drafts of these slots: a new round, or a new request in the slot."""
        for slot in slots:
            self._written[slot] = 0

    def write(
        self,
        slots: Sequence[int],
        step: int,
        logits: torch.Tensor,
        probs: torch.Tensor | None = None,
        *,
        ids: torch.Tensor | None = None,
        vocab_size: int = 0,
    ) -> None:
        """Store the logits [R, V] that draft ``step`` of these slots was drawn from, and q of the drawn tokens [R].

        ``ids`` [R, M], or [M] where they never change: the columns of ``logits`` [R, M] are these of ``vocab_size`` tokens.
        """
        if ids is not None:
            self._write_ids(slots, step, ids, vocab_size)
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

    def _write_ids(self, slots: Sequence[int], step: int, ids: torch.Tensor, vocab_size: int) -> None:
        if self._ids is None:
            self._vocab_size = vocab_size
            shape = (1, 1) if ids.ndim == 1 else (self.max_requests, self.k)
            self._ids = torch.empty((*shape, ids.shape[-1]), dtype=torch.int32, device=ids.device)
            self._ids[:] = ids if ids.ndim == 1 else -1
        if ids.ndim == 2:
            self._ids[list(slots), step] = ids.int()

    def _held(self, index: Any) -> torch.Tensor | TopKDraftLogits:
        assert self._logits is not None
        if self._ids is None:
            return self._logits[index]
        ids = self._ids.expand(*self._logits.shape[:2], -1)
        return TopKDraftLogits(ids[index], self._logits[index], self._vocab_size)

    def laws(self, slots: Sequence[int]) -> torch.Tensor | TopKDraftLogits | None:
        """Laws [R, k] of slots, as views where they are neighbours; None while nothing was written."""
        if self._logits is None:
            return None
        first, count = slots[0], len(slots)
        neighbours = list(slots) == list(range(first, first + count))
        return self._held(slice(first, first + count) if neighbours else list(slots))

    def read(self, slots: Sequence[int], num_drafts: Sequence[int]) -> DenseDraftLogits | TopKDraftLogits:
        """Laws of R requests, in the order of ``slots``; rows beyond a request's drafts are unspecified."""
        for slot, count in zip(slots, num_drafts, strict=True):
            if count > self._written[slot]:
                raise ValueError(f"slot {slot} verifies {count} drafts but only {self._written[slot]} were stored")
        if self._logits is None:
            raise ValueError("no draft logits were stored; pass draft_laws=None for one-hot drafts")
        held = self._held(list(slots))
        return held if isinstance(held, TopKDraftLogits) else DenseDraftLogits(held, self._probs[list(slots)])
