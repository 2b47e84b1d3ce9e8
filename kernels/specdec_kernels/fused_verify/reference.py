"""One-hot and greedy verification as the composition of the separate references."""

from __future__ import annotations

import torch

from specdec_kernels.accept.reference import accept
from specdec_kernels.residual_sample.reference import residual_sample
from specdec_kernels.row_stats.reference import row_stats


def fused_verify(
    target: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    row_request: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids [R, K + 1], their count [R] and invalid [R]; see the package."""
    num_requests, k = drafts.shape
    request = row_request.long()
    local = torch.arange(len(target), device=target.device) - row_start.long()[request]
    padded = torch.cat([drafts, torch.full_like(drafts[:, :1], -1) if k else drafts.new_full((num_requests, 1), -1)], 1)
    judged = torch.where(local < num_drafts.long()[request], padded[request, local], -1)
    stats = row_stats(target, temperature[request], judged, block_size)
    rows = (row_start, temperature, seeds, positions)
    plan = accept(stats.token_logprob, stats.argmax, drafts, num_drafts, *rows, None, None, None)
    drawn = residual_sample(target, stats, plan, *rows, None, None, k, False)
    column = torch.arange(k + 1, device=target.device)[None]
    count = plan.num_accepted.long()[:, None]
    ids = torch.where(column < count, padded, torch.where(column == count, drawn[:, None], -1))
    read = (stats.maximum == -torch.inf) & (local <= plan.num_accepted.long()[request])
    invalid = torch.zeros(num_requests, dtype=torch.int64, device=target.device).index_add(0, request, read.long()) > 0
    return ids, plan.num_accepted.long() + 1, invalid
