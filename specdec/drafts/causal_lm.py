"""A draft that is a language model of its own: its weights, its KV cache, and its forwards over many requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specdec.drafts.run.runner import DraftRunner
from specdec.errors import TargetError
from specdec.model.batch import build_batch
from specdec.model.target import Target, load_target

_FEW = 8  # pending tokens that may ride along in a forward of drafting rows
_CHUNK = 1024  # tokens of one catch-up forward


@dataclass
class DraftSequence:
    """One request as the draft sees it, in the draft's token ids.

    ``token_ids[:num_computed]`` are in the draft's KV cache. Beyond ``num_committed`` stand the drafts of the latest
    round, of which the last one was never consumed: after full acceptance the cache lacks two tokens, else one.
    """

    slot: int
    token_ids: list[int]
    num_committed: int = 0
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)  # placeholders after the pending tokens, for one-pass drafts

    def __post_init__(self) -> None:
        self.num_committed = len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Tokens that the next forward must consume."""
        return len(self.token_ids) - self.num_computed

    def commit(self, new: Sequence[int]) -> None:
        """The request grew by these tokens; cached drafts that agree with them stay."""
        at = self.num_committed
        drafted = self.token_ids[at:]
        agree = 0
        while agree < min(len(drafted), len(new)) and drafted[agree] == new[agree]:
            agree += 1
        self.token_ids[at:] = new
        self.num_committed = len(self.token_ids)
        # at least the newest token is consumed again, its logits are what drafting starts from
        self.num_computed = max(0, min(self.num_computed, at + agree, self.num_committed - 1))


class DraftLanguageModel:
    """Runs a causal LM as a draft for up to ``max_rows`` requests of at most ``max_len`` tokens."""

    def __init__(self, model: Target, runner: DraftRunner, max_len: int) -> None:
        self.model, self.runner = model, runner
        self.max_len = max_len if model.model_max_len is None else min(max_len, model.model_max_len)
        self.cache = runner.cache(model.layout.num_layers, self.max_len)
        self.sequences: dict[int, DraftSequence] = {}

    @classmethod
    def load(cls, path: str, *, dtype: Any, tokenizer: Any, runner: DraftRunner, max_len: int) -> Any:
        """Load a checkpoint; ``tokenizer`` None reads the checkpoint's own. Raises ``TargetError``."""
        model = load_target(path, dtype=dtype, device=runner.device, tokenizer=tokenizer)
        if model.layout.recurrent:  # kept rows may be any prefix of what was drafted, whenever that was
            raise TargetError(
                f"{path} has recurrent layers, and a draft's state cannot be taken back to where the target agreed; use a "
                "draft with attention only"
            )
        return cls(model, runner, max_len)

    def start(self, slot: int, token_ids: list[int]) -> None:
        """A request with this prompt (draft ids) took the slot."""
        self.sequences[slot] = DraftSequence(slot, token_ids)
        self.runner.start(slot)

    def finish(self, slot: int) -> None:
        """The slot's request ended."""
        self.sequences.pop(slot, None)
        self.runner.finish(slot)

    def room(self, sequence: DraftSequence) -> int:
        """Tokens that may be drafted within the draft's own length; the last of them needs no position."""
        return max(0, self.max_len - sequence.num_committed + 1)

    @torch.inference_mode()
    def logits(self, sequences: Sequence[DraftSequence]) -> torch.Tensor:
        """Consume all pending tokens and placeholders; logits [R, 1 + placeholders, V] of the last rows, in order.

        All sequences need equally many placeholders (``drafts``). Placeholders never count as computed.
        """
        for sequence in sequences:
            while sequence.num_pending > _FEW:
                self._forward([sequence], min(_CHUNK, sequence.num_pending - 1))
        rows = self._forward(sequences, max(s.num_pending for s in sequences))
        return torch.stack([rows[s.slot] for s in sequences])

    def _forward(self, sequences: Sequence[DraftSequence], chunk: int) -> dict[int, torch.Tensor]:
        model = self.model
        batch = build_batch(self.cache, model.layout, sequences, chunk, model.dtype)  # type: ignore[arg-type]
        logits = model.logits(batch).split(batch.logits_counts)
        for sequence, count, placeholders in zip(batch.requests, batch.counts, batch.num_drafts, strict=True):
            sequence.num_computed += count - placeholders
            self.cache.length_of[sequence.slot] = sequence.num_computed
        return {s.slot: logits[i] for i, s in enumerate(batch.requests)}
