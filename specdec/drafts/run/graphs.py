"""Greedy chains of a draft network as CUDA graphs, captured on first use per (batch bucket, drafts, KV bucket).

A chain starts from what left the last layer at each request's newest pair; all its drafts are one replay. Rows of the
cache that take no part, and drafts that a request does not want, write to the cache's bin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specdec.drafts.network import DraftNetwork
from specdec.model.attention import AttentionLayout
from specdec.model.graphs import SMALLEST_KV, Recorder, cuda_recorder
from specdec.model.kv_cache import CachePlan, SlotCache


@dataclass
class _Chain:
    """One captured chain and its buffers; B rows of the cache, in their order."""

    hidden: torch.Tensor  # [B, H]
    starts: torch.Tensor  # [B]: position of the first draft's own pair
    ends: torch.Tensor  # [B]: behind the last position that may be written
    token_ids: torch.Tensor | None = None  # [B, k]
    replay: Callable[[], None] | None = None


class ChainGraphs:
    """Runs greedy chains over the rows of one draft cache. ``record`` None captures on the cache's CUDA device."""

    def __init__(
        self, network: DraftNetwork, cache: SlotCache, layout: AttentionLayout, record: Recorder | None = None
    ) -> None:
        self.network, self.cache, self.layout = network, cache, layout
        self.record = record or cuda_recorder(layout.device)
        self.chains: dict[tuple[int, int, int], _Chain] = {}

    def run(
        self, rows: Sequence[int], hidden: torch.Tensor, starts: Sequence[int], counts: Sequence[int]
    ) -> list[list[int]]:
        """Target ids [R][counts[r]] of chains from ``hidden`` [R, H]; ``starts`` [R]: positions of the drafts' first pairs."""
        k, last = max(counts), max(s + c - 1 for s, c in zip(starts, counts, strict=True))
        size = min(_power_of_two(max(rows) + 1), self.cache.max_rows)
        key = (size, k, min(max(_power_of_two(max(last, 1)), SMALLEST_KV), self.cache.capacity))
        if key not in self.chains:
            nothing = torch.zeros(size, dtype=torch.int64, device=self.layout.device)
            self.chains[key] = _Chain(hidden.new_zeros(size, hidden.shape[-1]), nothing, nothing.clone())
        chain, device = self.chains[key], self.layout.device
        index = torch.tensor(rows, device=device)
        chain.ends.zero_()
        chain.hidden[index], chain.starts[index] = hidden, torch.tensor(starts, device=device)
        chain.ends[index] = torch.tensor([s + c - 1 for s, c in zip(starts, counts, strict=True)], device=device)
        if chain.replay is None:
            chain.token_ids, chain.replay = self.record(lambda: self._drafts(chain, k, key[2]))
        chain.replay()
        assert chain.token_ids is not None
        drafted: list[list[int]] = chain.token_ids[index].tolist()
        return [ids[:count] for ids, count in zip(drafted, counts, strict=True)]

    def _drafts(self, chain: _Chain, k: int, kv_len: int) -> torch.Tensor:
        """The k drafts of every row [B, k], from the buffers alone."""
        network, hidden, drafted = self.network, chain.hidden, []
        column = torch.arange(len(hidden), device=hidden.device)[:, None]
        for number in range(k):
            best = network.logits(hidden, number).argmax(-1)
            drafted.append(best if network.to_target is None else network.to_target[best])
            if number == k - 1:
                break
            positions = (chain.starts + number)[:, None]
            writes = torch.where(positions < chain.ends[:, None], positions, self.cache.bin)
            positions = torch.minimum(positions, writes)  # nothing looks a position beyond the tables up
            self.cache.plan = CachePlan(0, len(hidden), kv_len, None, positions=writes, row_column=column)
            mask = self.layout.mask(positions, kv_len, hidden.dtype)
            features = network.feedback(hidden, number)[:, None]
            x = network.inputs(drafted[-1][:, None], features, positions == 0)
            hidden = network(x, positions, mask, self.cache, number)[:, -1]
        return torch.stack(drafted, 1)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
