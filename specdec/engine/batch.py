"""The tensors of one forward over requests of different lengths.

Rows are right-aligned: padding stands before a request's tokens, so the rows to verify are the last ones of every
request. Padding sits at position 0 and is written to the cache's bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec.engine.attention import AttentionLayout, Mask
from specdec.engine.kv_cache import CachePlan, SlotCache
from specdec.engine.requests import Request


@dataclass
class Batch:
    """R requests with W columns; ``counts[r]`` tokens are request r's, the rest is padding on the left."""

    requests: list[Request]
    counts: list[int]
    num_drafts: list[int]  # of the counted tokens, how many are drafts
    samples: list[bool]  # False: an unfinished prompt, nothing to sample
    input_ids: torch.Tensor  # [R, W]
    positions: torch.Tensor  # [R, W]
    plan: CachePlan
    mask: Mask

    @property
    def width(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def rows_needed(self) -> int:
        """Trailing columns whose logits are needed; at least 1."""
        return 1 + max(self.num_drafts)

    def flatten(self, padded: torch.Tensor) -> torch.Tensor:
        """[R, W, ...] without the padding: [N, ...], requests one after the other."""
        width = padded.shape[1]
        if all(count == width for count in self.counts):
            return padded.flatten(0, 1)
        return torch.cat([padded[r, width - count :] for r, count in enumerate(self.counts)])


def build_batch(
    cache: SlotCache, layout: AttentionLayout, requests: Sequence[Request], chunk: int, dtype: torch.dtype
) -> Batch:
    """The next forward of ``requests``: their pending tokens (at most ``chunk``) and, behind them, their drafts."""
    ordered = sorted(requests, key=lambda r: cache.row_of[r.slot])
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
    counts = [len(row) for row in tokens]
    starts = [request.num_computed for request in ordered]
    width, kv_len = max(counts), max(s + c for s, c in zip(starts, counts, strict=True))
    device = layout.device
    rows = [cache.row_of[request.slot] for request in ordered]
    scattered = rows[-1] - rows[0] + 1 != len(rows)
    plan = CachePlan(rows[0], len(rows), kv_len, None)
    if scattered:
        plan.rows = torch.tensor(rows, device=device)
    if all(c == width for c in counts) and all(s == starts[0] for s in starts) and not scattered:
        plan.start = starts[0]
        input_ids = torch.tensor(tokens, device=device)
        positions = cache.all_positions(device)[:, starts[0] : kv_len].expand(len(rows), -1)
        bare = layout.may_skip and (width == 1 or starts[0] == 0) and layout.all_visible(kv_len)
        mask = None if bare else layout.mask(positions[:1], kv_len, dtype)
    else:
        pads = [width - count for count in counts]
        input_ids = torch.tensor([[0] * p + row for p, row in zip(pads, tokens, strict=True)], device=device)
        spans = [list(range(s, s + c)) for s, c in zip(starts, counts, strict=True)]
        positions = torch.tensor([[0] * p + span for p, span in zip(pads, spans, strict=True)], device=device)
        plan.positions = torch.tensor(
            [[cache.bin] * p + span for p, span in zip(pads, spans, strict=True)], device=device
        )
        plan.row_column = torch.tensor(rows, device=device)[:, None]
        mask = layout.mask(positions, kv_len, dtype)
    return Batch(ordered, counts, num_drafts, samples, input_ids, positions, plan, mask)
