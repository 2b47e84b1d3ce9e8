"""The committed tokens of each request on the host, followed through verify steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from specdec.speculators.base import ProposeBatch


@dataclass(frozen=True)
class Committed:
    """What one verify step settled for one request."""

    row: int  # index in the batch
    slot: int
    num_drafts: int  # drafts wanted now; 0 while a prompt is being prefilled
    start: int  # absolute position of ``tokens[0]``
    tokens: list[int]  # tokens that the target consumed and kept, then the one it sampled


def committed(batch: ProposeBatch) -> Iterator[Committed]:
    """The settled tokens of each request of the batch, rejected drafts left out."""
    offsets, rejected, sampled = batch.row_offsets.tolist(), batch.num_rejected.tolist(), batch.last_sampled.tolist()
    token_ids, drafts = batch.token_ids.tolist(), batch.num_drafts.tolist()
    positions = batch.positions.tolist()
    for row, slot in enumerate(batch.slots.tolist()):
        first, last = offsets[row], offsets[row + 1] - rejected[row]
        tokens = token_ids[first:last]
        if sampled[row] < 0:
            yield Committed(row, slot, 0, positions[first], tokens)
        else:
            yield Committed(row, slot, drafts[row], positions[first], [*tokens, sampled[row]])


class TokenHistory:
    """Prompt and emitted tokens per slot."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        """A request with this prompt [P] took the slot."""
        self.tokens[slot] = prompt_token_ids.tolist()

    def extend(self, step: Committed) -> list[int]:
        """Append what the step settled and return only the new tokens."""
        history = self.tokens.setdefault(step.slot, [])
        assert step.start <= len(history), f"slot {step.slot}: a step at {step.start} after {len(history)} known tokens"
        new = step.tokens[len(history) - step.start :]
        history.extend(new)
        return new

    def finish(self, slot: int) -> None:
        """The slot's request ended."""
        self.tokens.pop(slot, None)


def as_drafts_tensor(rows: list[list[int]], width: int, device: torch.device) -> torch.Tensor:
    """Draft rows of any length up to ``width`` as [R, width] int64 with -1 after each row's end."""
    padded = [row + [-1] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.int64, device=device).reshape(len(rows), width)
