"""Suffix decoding: the likeliest continuation of a suffix seen earlier in this request or in earlier answers."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.speculators.base import BaseSpeculator, Drafts, Step
from specdec.speculators.history import TokenHistory, committed
from specdec.speculators.suffix_tree import Candidate, SuffixTree
from specdec.verify.coupling import couples_drafts


class SuffixSpeculator(BaseSpeculator):
    """Drafts as many tokens as the statistics support, often none. Source: arXiv 2411.04975.

    Two structures: one per request over prompt and output, one over the outputs (not the prompts) of this and earlier
    requests, of which the oldest leaves first. Options: ``suffix_decoding_max_tree_depth`` (longest substring
    counted), ``suffix_decoding_max_cached_requests`` (capacity of the global structure, 0 = none),
    ``suffix_decoding_max_spec_factor`` (drafts per matched token), ``suffix_decoding_min_token_prob`` (a draft ends
    where its probability falls below). Drafts are one-hot; confidences are the observed frequencies.

    Sampled requests use their own structure only, unless verification is coupled: what is drafted decides what standard
    verification emits, and equal seeds must give equal outputs whatever ran before.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        super().__init__(config, device)
        self.max_depth = int(config.get("options.suffix_decoding_max_tree_depth", 24))
        self.capacity = int(config.get("options.suffix_decoding_max_cached_requests", 10000))
        self.spec_factor = float(config.get("options.suffix_decoding_max_spec_factor", 1.0))
        self.min_probability = float(config.get("options.suffix_decoding_min_token_prob", 0.1))
        self.coupled = couples_drafts(config)
        self._history = TokenHistory()
        self._own: dict[int, SuffixTree] = {}
        self._global = SuffixTree(self.max_depth)
        self._order: deque[int] = deque()  # sequences of the global structure, oldest first
        self._sequence_of: dict[int, int] = {}  # slot -> its sequence in the global structure
        self._next_sequence = 0

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        self._history.start(slot, prompt_token_ids)
        tree = self._own[slot] = SuffixTree(self.max_depth)
        tree.extend(0, self._history.tokens[slot])
        self._sequence_of[slot] = self._next_sequence
        self._next_sequence += 1

    def observe(self, step: Step) -> None:
        for settled in committed(step):
            new = self._history.extend(settled)
            if new:
                self._own[settled.slot].extend(0, new)
                self._remember(self._sequence_of[settled.slot], new)

    def propose(self, step: Step) -> Drafts:
        width = self.num_speculative_tokens
        columns = (step.host(name) for name in ("slots", "num_drafts", "temperature"))
        found = [
            self._speculate(slot, min(wanted, width), shared=self.coupled or temperature == 0)
            for slot, wanted, temperature in zip(*columns, strict=True)
        ]
        lists = {"token_ids": [c.tokens for c in found], "confidences": [c.probabilities for c in found]}
        return Drafts.of_lists(lists, width=width, device=self.device)

    def finish(self, slot: int) -> None:
        self._history.finish(slot)
        self._own.pop(slot, None)
        sequence = self._sequence_of.pop(slot, None)
        if sequence is not None:
            self._global.close(sequence)

    def _remember(self, sequence: int, tokens: list[int]) -> None:
        if self.capacity == 0:
            return
        if sequence not in self._order:
            self._order.append(sequence)
            if len(self._order) > self.capacity:
                self._global.remove(self._order.popleft())
        self._global.extend(sequence, tokens)

    def _speculate(self, slot: int, count: int, shared: bool) -> Candidate:
        context = self._history.tokens[slot][-self.max_depth :]
        rules: dict[str, Any] = {"spec_factor": self.spec_factor, "min_probability": self.min_probability}
        own = self._own[slot].speculate(context, count, sequence=0, **rules)
        if not shared:
            return own
        other = self._global.speculate(context, count, **rules)
        return own if own.score >= other.score else other
