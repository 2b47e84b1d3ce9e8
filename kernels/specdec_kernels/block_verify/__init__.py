"""Block verification: judges all drafts of a request together, accepting more than one by one does."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.block_verify import reference
from specdec_kernels.draw_plan import DrawPlan
from specdec_kernels.row_stats.reference import RowStats


def block_verify(
    target: torch.Tensor,  # [N, V] logits, before temperature
    stats: RowStats,  # of target, with the draft that each row judges as token
    drafts: torch.Tensor,  # [R, K] int64, -1 = no draft here nor after
    num_drafts: torch.Tensor,  # [R] int32; request r owns rows row_start[r] .. row_start[r] + num_drafts[r]
    row_start: torch.Tensor,  # [R] int32
    temperature: torch.Tensor,  # [R], 0 = greedy
    seeds: torch.Tensor,  # [R] int64
    positions: torch.Tensor,  # [R] int64, of the first token this round may emit
    *,
    draft: torch.Tensor | None = None,  # [R * K, V'] logits that drafts were drawn from; None = one-hot
    draft_stats: RowStats | None = None,  # of draft, with its drafts as tokens
    backend: str = "auto",
) -> DrawPlan:
    """Keep the longest prefix whose own test passes; a placeholder ends the block."""
    inputs = (target, stats, drafts, num_drafts, row_start, temperature, seeds, positions, draft, draft_stats)
    if use_triton(target, backend):
        from specdec_kernels.block_verify import triton as kernel

        return kernel.block_verify(*inputs)
    return reference.block_verify(*inputs)
