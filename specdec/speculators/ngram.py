"""Prompt lookup: what followed an earlier occurrence of the last n tokens is the draft."""

from __future__ import annotations

from typing import Any

import torch
from specdec_kernels.ngram_match import ngram_match

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.speculators.base import BaseSpeculator, Drafts, Step
from specdec.speculators.history import committed
from specdec.speculators.ngram_index import NgramIndex, continuation

DEFAULT_WINDOW = 5


class NgramSpeculator(BaseSpeculator):
    """Drafts by the longest suffix of ``prompt_lookup_min..prompt_lookup_max`` tokens that occurred before.

    ``prompt_lookup_match`` settles ties between occurrences of the same length: ``leftmost`` takes the first and ends
    the draft where the history ends, as transformers does; ``rightmost`` (default) takes the latest and goes on
    periodically where the copy reaches the end of the history. Without a match there is no draft, so no verify width
    is wasted. Drafts are one-hot; their confidences grow with the match and with earlier occurrences that agree. On a
    GPU the engine's token history is searched where it is, without confidences; on the CPU an index answers in constant
    time.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device, req_states: Any | None = None) -> None:
        super().__init__(config, device)
        self.min_n, self.max_n = lookup_window(config)
        self.leftmost = config.get("options.prompt_lookup_match") == "leftmost"
        self.states = req_states
        self.searches_on_device = req_states is not None and device.type != "cpu"
        self._indexes: dict[int, NgramIndex] = {}

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        if self.searches_on_device:
            return
        index = self._indexes[slot] = NgramIndex(self.min_n, self.max_n, leftmost=self.leftmost)
        index.extend(prompt_token_ids.tolist())

    def observe(self, step: Step) -> None:
        if self.searches_on_device:
            return
        for settled in committed(step):
            index = self._indexes[settled.slot]
            index.extend(settled.tokens[len(index.tokens) - settled.start :])

    def propose(self, step: Step) -> Drafts:
        return self._search(step) if self.searches_on_device else self._look_up(step)

    def _search(self, step: Step) -> Drafts:
        """Search ``req_states.token_ids``, without a word to the host."""
        assert self.states is not None
        k = self.num_speculative_tokens
        found = ngram_match(
            self.states.token_ids[step.slots],
            self.states.num_tokens[step.slots],
            min_n=self.min_n,
            max_n=self.max_n,
            k=k,
            rightmost=not self.leftmost,
        )
        columns = torch.arange(k, device=found.device)
        if not self.leftmost:
            period = (found >= 0).sum(-1, keepdim=True).clamp(min=1)
            found = found.gather(1, columns % period)
        return Drafts(torch.where(columns < step.num_drafts[:, None], found, -1))

    def _look_up(self, step: Step) -> Drafts:
        rows: list[list[int]] = []
        confidences: list[list[float]] = []
        for slot, wanted in zip(step.host("slots"), step.host("num_drafts"), strict=True):
            index = self._indexes[slot]
            start, count = index.match(), min(wanted, self.num_speculative_tokens)
            rows.append([] if start is None else continuation(index.tokens, start, count, wrap=not self.leftmost))
            confidences.append([] if start is None else index.confidences(start, rows[-1]))
        lists = {"token_ids": rows, "confidences": confidences}
        return Drafts.of_lists(lists, width=self.num_speculative_tokens, device=self.device)

    def finish(self, slot: int) -> None:
        self._indexes.pop(slot, None)


def lookup_window(config: SpeculativeConfig) -> tuple[int, int]:
    """(min, max) n-gram sizes; one that is absent equals the other, 5 and 5 when both are."""
    low, high = config.get("options.prompt_lookup_min"), config.get("options.prompt_lookup_max")
    low, high = low or high or DEFAULT_WINDOW, high or low or DEFAULT_WINDOW
    if low > high:
        raise ValueError(f"prompt_lookup_min is {low}; allowed: at most prompt_lookup_max ({high})")
    return low, high
