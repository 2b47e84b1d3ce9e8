"""The assistant of a Gemma 4 target drafts from the target's keys and values, which it leaves as they are."""

from __future__ import annotations

from typing import Any

import torch

from specdec.drafts.errors import DraftError
from specdec.drafts.gemma4 import Gemma4Draft
from specdec.drafts.run.runner import DraftRunner
from specdec.drafts.run.sampling import DraftSampling
from specdec.model.attention import SLIDING
from specdec.speculators.base import BaseSpeculator, Drafts, Needs, Step, TargetHandle


class Gemma4Speculator(BaseSpeculator):
    """All drafts of a round are queries at one position over the same keys: the target's, up to the last token kept.

    The position is that of this token, or the one behind it (``query_position``); engines differ, and keys were turned
    by their own positions, so acceptance depends on it. Source: the Gemma 4 assistant of transformers and vLLM.
    Raises ``DraftError`` at ``load`` for a checkpoint that cannot be read or does not fit.
    """

    network: Gemma4Draft

    @property
    def needs(self) -> Needs:
        return Needs(last=True, target_kv_layers=tuple(self.config.wiring.get("target_kv_layers") or ()))

    def load(self, target: TargetHandle) -> None:
        if target.kv_cache is None:
            raise DraftError("a Gemma 4 assistant reads the target's keys and values, and this target keeps none")
        self.runner, self.cache = DraftRunner.of(target, self.config), target.kv_cache
        self.sampling = DraftSampling(self.config, self.runner.device)
        self.network = Gemma4Draft.load(self.config, target).eval().requires_grad_(False)
        self.window = target.model.config.get_text_config(decoder=True).sliding_window
        self.ahead = int(self.config.options["query_position"] == "next_token")

    @torch.inference_mode()
    def propose(self, step: Step) -> Drafts:
        assert step.states is not None and step.states.last is not None
        offsets, rejected, positions = step.host("row_offsets"), step.host("num_rejected"), step.host("positions")
        newest = [end - 1 - bad for end, bad in zip(offsets[1:], rejected, strict=True)]
        counts = [min(count, self.num_speculative_tokens) for count in step.host("num_drafts")]
        round_ = self.runner.round(self.sampling, step, [positions[row] + 2 for row in newest])
        active = [r for r, count in enumerate(counts) if count]
        if not active:
            return round_.drafts()
        at = torch.tensor([positions[newest[r]] for r in active], device=self.runner.device)
        held, masks = self._read([round_.slots[r] for r in active], at)
        features = step.states.last[[newest[r] for r in active]]
        last_sampled = step.host("last_sampled")
        tokens = [last_sampled[r] for r in active]
        for number in range(max(counts)):
            still = [i for i, r in enumerate(active) if counts[r] > number]
            if len(still) < len(active):
                active, tokens = [active[i] for i in still], [tokens[i] for i in still]
                features, at = features[still], at[still]
                held = {kind: (keys[still], values[still]) for kind, (keys, values) in held.items()}
                masks = {kind: mask[still] for kind, mask in masks.items()}
            ids = torch.tensor(tokens, device=at.device)[:, None]
            x = self.network.inputs(ids, features[:, None], torch.zeros_like(ids, dtype=torch.bool))
            hidden = self.network(x, at[:, None] + self.ahead, masks, held)[:, 0]
            tokens = round_.draw(active, self.network.logits(hidden), number)
            features = self.network.feedback(hidden)
        return round_.drafts()

    def _read(self, slots: list[int], at: torch.Tensor) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Per kind of layer: the target's keys and values [R, heads, KV, D], and what queries see [R, 1, 1, KV]."""
        rows = [self.cache.row_of[slot] for slot in slots]
        length = int(at.max()) + 1
        keys = torch.arange(length, device=at.device)
        seen = keys <= at[:, None]
        near = seen & (at[:, None] + self.ahead - keys < self.window)
        held, masks = {}, {}
        for kind, index in self.network.kv_layers.items():
            layer = self.cache.layers[index]
            held[kind] = (layer.keys[rows, :, :length], layer.values[rows, :, :length])
            masks[kind] = (near if kind == SLIDING else seen)[:, None, None]
        return held, masks
