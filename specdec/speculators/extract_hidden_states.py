"""Writes the target's hidden states of every request to files that draft trainers read; drafts nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.model.handle import TargetHandle
from specdec.model.state_shards import LAYOUTS, Sample, StateFolder
from specdec.speculators.base import BaseSpeculator, Drafts, Needs, Step

_DEFAULT_FOLDER = "hidden_states"


@dataclass
class _Sequence:
    """What a running request has shown so far."""

    index: int
    prompt_length: int
    prompt_mask: list[int] | None
    token_ids: list[int] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)  # [n, A, H] each, on the host
    last: list[torch.Tensor] = field(default_factory=list)  # [n, H] each

    def sample(self) -> Sample:
        """All of it; generated tokens are what a trainer learns from, and of the prompt what its mask says."""
        count = len(self.token_ids)
        mask = [*(self.prompt_mask or [0] * self.prompt_length), *[1] * (count - self.prompt_length)][:count]
        return Sample(self.token_ids, mask, torch.cat(self.states), torch.cat(self.last) if self.last else None)


class ExtractHiddenStatesSpeculator(BaseSpeculator):
    """One file for each request that ends by itself: every token that the target consumed, with its states.

    The newest token was sampled but never consumed, so it has no state and is not written. Rejected drafts of other
    members of a chain leave no rows. Requests that are aborted or fail leave no file.

    ``upcoming`` may hold (index, loss mask of the prompt or None) of the next requests, in the order in which they
    start; without, files are numbered on from those in the folder.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        super().__init__(config, device)
        self.layout_name = str(config.get("options.output_layout"))
        boundaries = tuple(config.wiring.get("capture_before_layer") or ())
        layers = config.target.get("num_hidden_layers")
        if LAYOUTS[self.layout_name].needs_last:  # stored after the final norm instead
            boundaries = tuple(b for b in boundaries if b != layers)
        self.boundaries = boundaries
        self.upcoming: deque[tuple[int, list[int] | None]] = deque()
        self.running: dict[int, _Sequence] = {}
        self.failed: dict[int, str] = {}  # index -> why there is no file
        self.folder: StateFolder
        self._next = 0

    @property
    def needs(self) -> Needs:
        return Needs(last=LAYOUTS[self.layout_name].needs_last, boundaries=self.boundaries)

    def load(self, target: TargetHandle) -> None:
        """Open the folder; raises ``StateShardError`` when it holds states of another kind."""
        facts = {
            "target": self.config.target.get("model"),
            "boundaries": list(self.boundaries),
            "num_hidden_layers": target.model.config.get_text_config(decoder=True).num_hidden_layers,
            "hidden_size": target.hidden_size,
            "vocab_size": target.vocab_size,
            "dtype": str(target.dtype).removeprefix("torch."),
        }
        self.folder = StateFolder(
            Path(self.config.get("options.output_dir") or _DEFAULT_FOLDER), self.layout_name, facts
        )
        self._next = self.folder.next_index

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        if self.upcoming:
            index, mask = self.upcoming.popleft()
        else:
            index, mask = self._next, None
        self._next = max(self._next, index + 1)
        self.running[slot] = _Sequence(index, len(prompt_token_ids), mask)

    def observe(self, step: Step) -> None:
        assert step.states is not None
        states, last = step.states.select(self.boundaries), step.states.last
        states = states.view(len(states), len(self.boundaries), -1)
        offsets, rejected, tokens = step.host("row_offsets"), step.host("num_rejected"), step.host("token_ids")
        sampled, finished = step.host("last_sampled"), step.host("finished")
        for r, slot in enumerate(step.host("slots")):
            sequence, first, end = self.running[slot], offsets[r], offsets[r + 1] - rejected[r]
            sequence.token_ids += tokens[first:end]
            sequence.states.append(_kept(states[first:end]))  # the engine reuses what it hands out
            if last is not None and self.needs.last:
                sequence.last.append(_kept(last[first:end]))
            if finished[r] and sampled[r] >= 0:  # none was sampled where the request failed
                self._write(self.running.pop(slot))

    def _write(self, sequence: _Sequence) -> None:
        sample = sequence.sample()
        if sample.is_finite:
            self.folder.write(sequence.index, sample)
        else:
            self.failed[sequence.index] = "the target's hidden states are not finite"

    def propose(self, step: Step) -> Drafts:
        return Drafts.of_lists({"token_ids": [[] for _ in step.host("slots")]}, width=self.num_speculative_tokens)

    def finish(self, slot: int) -> None:
        self.running.pop(slot, None)

    def close(self) -> None:
        self.folder.close()


def _kept(states: torch.Tensor) -> torch.Tensor:
    return states.to("cpu", copy=True)
