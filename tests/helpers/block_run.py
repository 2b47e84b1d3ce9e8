"""Running a block network over a growing cache, the way every test of it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from specdec.drafts.block.network import BlockDraft


@dataclass
class Run:
    """A block behind a context, from states [P, S] and an anchor."""

    network: BlockDraft
    states: torch.Tensor
    anchor: int
    rows: int
    chunks: tuple[int, ...] = ()
    cache: Any = field(default_factory=DynamicCache)

    @torch.inference_mode()
    def hidden(self) -> torch.Tensor:
        """Rows [1, B, H] after the final norm."""
        network, at = self.network, 0
        for size in self.chunks or (len(self.states),):
            part = self.states[at : at + size]
            network.write_context(network.features(part)[None], torch.arange(at, at + len(part))[None], self.cache)
            at += len(part)
        ids = network.block_ids(torch.tensor([self.anchor]), self.rows)
        positions = torch.arange(at, at + self.rows)[None]
        return network.norm(network(network.inputs(ids), positions, cache=self.cache))

    @torch.inference_mode()
    def greedy(self, count: int) -> tuple[list[int], list[torch.Tensor], list[float | None]]:
        """Drafts, their scores [M], and confidences."""
        hidden, anchors = self.hidden(), torch.tensor([self.anchor])
        walk = self.network.walk(hidden, anchors, self.network.features(self.states[-1:]), count)
        tokens, choices, drafts, rows, confidences = anchors, torch.zeros(1, dtype=torch.long), [], [], []
        for step in range(count):
            confidence = walk.confidence(step, tokens)
            scores, ids = walk.row(step, tokens, choices)
            choices = scores.argmax(-1)
            tokens = choices if ids is None else ids.expand(len(scores), -1).gather(1, choices[:, None])[:, 0]
            drafts.append(int(tokens))
            rows.append(scores[0])
            confidences.append(None if confidence is None else float(confidence))
        return drafts, rows, confidences
