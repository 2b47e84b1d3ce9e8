"""One forward over requests of different lengths: its tokens as lists, and as padded tensors where those are needed.

Padded rows are right-aligned: padding stands before a request's tokens, so the rows to verify are the last ones of every
request. Padding sits at position 0 and is written to the cache's bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch

from specdec.model.attention import AttentionLayout, Mask
from specdec.model.kv_cache import CachePlan, SlotCache
from specdec.model.recurrent.states import Spans


class CachedTokens(Protocol):
    """A sequence whose first ``num_computed`` tokens are in its slot of the cache; drafts stand behind the others."""

    slot: int
    token_ids: list[int]
    num_computed: int
    drafts: list[int]

    @property
    def num_pending(self) -> int:
        """Known tokens that are not in the cache yet."""


@dataclass(frozen=True)
class Padded:
    """R requests with W columns, the way a transformers model takes them."""

    input_ids: torch.Tensor  # [R, W]
    positions: torch.Tensor  # [R, W]
    plan: CachePlan
    mask: Mask


@dataclass
class Batch:
    """R requests in the order of their cache rows; N tokens in all, request after request."""

    requests: list[Any]  # of ``CachedTokens``
    tokens: list[list[int]]  # per request: its pending tokens, then its drafts
    starts: list[int]  # position of each request's first token
    rows: list[int]  # cache row of each request
    num_drafts: list[int]  # of the tokens, how many are drafts
    samples: list[bool]  # False: an unfinished prompt, nothing to sample
    cache: SlotCache
    layout: AttentionLayout
    dtype: torch.dtype

    @cached_property
    def counts(self) -> list[int]:
        """Tokens of each request."""
        return [len(row) for row in self.tokens]

    @cached_property
    def width(self) -> int:
        """Columns W of the padded tensors."""
        return max(self.counts)

    @property
    def rows_needed(self) -> int:
        """Trailing columns whose logits are needed; at least 1."""
        return 1 + max(self.num_drafts)

    @cached_property
    def logits_counts(self) -> list[int]:
        """Rows of logits that each request needs: none, or one per draft and one more."""
        return [1 + k if samples else 0 for k, samples in zip(self.num_drafts, self.samples, strict=True)]

    @cached_property
    def padded(self) -> Padded:
        """The padded tensors, made when first asked for."""
        return _pad(self)

    def flatten(self, states: torch.Tensor) -> torch.Tensor:
        """Per-token states [R, W, ...] without the padding: [N, ...]; what has no padding stays."""
        if states.ndim == 2:
            return states
        if all(count == self.width for count in self.counts):
            return states.flatten(0, 1)
        return torch.cat([states[r, self.width - count :] for r, count in enumerate(self.counts)])

    def needed(self, logits: torch.Tensor) -> torch.Tensor:
        """The rows of padded logits [R, rows, V] that are needed: [sum(logits_counts), V]."""
        width, counts = logits.shape[1], self.logits_counts
        if all(count == width for count in counts):
            return logits.flatten(0, 1)
        return torch.cat([logits[r, width - count :] for r, count in enumerate(counts)])


def build_batch(
    cache: SlotCache, layout: AttentionLayout, requests: Sequence[CachedTokens], chunk: int, dtype: torch.dtype
) -> Batch:
    """The next forward of ``requests``: their pending tokens (at most ``chunk``) and, behind them, their drafts."""
    ordered = sorted(requests, key=lambda r: cache.row_of[r.slot]) if len(requests) > 1 else list(requests)
    tokens: list[list[int]] = []
    num_drafts: list[int] = []
    samples: list[bool] = []
    for request in ordered:
        pending = request.num_pending
        taken = min(pending, chunk)
        drafts = request.drafts if taken == pending else []
        tokens.append(request.token_ids[request.num_computed : request.num_computed + taken] + drafts)
        num_drafts.append(len(drafts))
        samples.append(taken == pending)
    starts = [request.num_computed for request in ordered]
    rows = [cache.row_of[request.slot] for request in ordered]
    return Batch(ordered, tokens, starts, rows, num_drafts, samples, cache, layout, dtype)


def _pad(batch: Batch) -> Padded:
    tokens, counts, starts, rows = batch.tokens, batch.counts, batch.starts, batch.rows
    cache, layout, device, width = batch.cache, batch.layout, batch.layout.device, batch.width
    kv_len = max(s + c for s, c in zip(starts, counts, strict=True))
    scattered = rows[-1] - rows[0] + 1 != len(rows)
    plan = CachePlan(rows[0], len(rows), kv_len, None, spans=Spans(rows, starts, counts, batch.num_drafts))
    if scattered:
        plan.rows = torch.tensor(rows, device=device)
    if all(c == width for c in counts) and all(s == starts[0] for s in starts) and not scattered:
        plan.start = starts[0]
        input_ids = torch.tensor(tokens, device=device)
        positions = cache.all_positions(device)[:, starts[0] : kv_len].expand(len(rows), -1)
        bare = layout.may_skip and (width == 1 or starts[0] == 0) and layout.all_visible(kv_len)
        return Padded(input_ids, positions, plan, None if bare else layout.mask(positions[:1], kv_len, batch.dtype))
    pads = [width - count for count in counts]
    input_ids = torch.tensor([[0] * p + row for p, row in zip(pads, tokens, strict=True)], device=device)
    spans = [list(range(s, s + c)) for s, c in zip(starts, counts, strict=True)]
    positions = torch.tensor([[0] * p + span for p, span in zip(pads, spans, strict=True)], device=device)
    plan.positions = torch.tensor([[cache.bin] * p + span for p, span in zip(pads, spans, strict=True)], device=device)
    plan.row_column = torch.tensor(rows, device=device)[:, None]
    return Padded(input_ids, positions, plan, layout.mask(positions, kv_len, batch.dtype))
