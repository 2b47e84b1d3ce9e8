"""The committed tokens of each request on the host, followed through verify steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from specdec.speculators.base import Step


@dataclass(frozen=True)
class Committed:
    """What one verify step settled for one request."""

    slot: int
    start: int  # absolute position of ``tokens[0]``
    tokens: list[int]  # tokens that the target consumed and kept, then the one it sampled


def committed(step: Step) -> Iterator[Committed]:
    """The settled tokens of each request of a step, rejected drafts left out."""
    offsets, rejected, sampled = step.host("row_offsets"), step.host("num_rejected"), step.host("last_sampled")
    token_ids, positions = step.host("token_ids"), step.host("positions")
    for row, slot in enumerate(step.host("slots")):
        first, last = offsets[row], offsets[row + 1] - rejected[row]
        tokens = token_ids[first:last]
        yield Committed(slot, positions[first], tokens if sampled[row] < 0 else [*tokens, sampled[row]])


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
