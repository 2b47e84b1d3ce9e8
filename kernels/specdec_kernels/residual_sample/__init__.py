"""The draw after the accepted drafts: from the target's law, or from what a rejection leaves of it."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.draw_plan import DrawPlan
from specdec_kernels.residual_sample import reference
from specdec_kernels.row_stats.reference import RowStats


def residual_sample(
    target: torch.Tensor,  # [N, V] logits, before temperature
    stats: RowStats,  # of target
    plan: DrawPlan,  # of R requests
    row_start: torch.Tensor,  # [R] int32: first target row of each request
    temperature: torch.Tensor,  # [R]
    seeds: torch.Tensor,  # [R] int64
    positions: torch.Tensor,  # [R] int64, of the first token this round may emit
    *,
    draft: torch.Tensor | None = None,  # [R * K, V'] logits that drafts were drawn from; None = one-hot
    draft_stats: RowStats | None = None,
    k: int = 0,
    gumbel: bool = False,
    backend: str = "auto",
) -> torch.Tensor:
    """[R] int64: one token for each request, by inverse CDF (one uniform) or with Gumbel noise per token.

    An empty residual (p and q equal to rounding) falls back to the target's law.
    """
    inputs = (target, stats, plan, row_start, temperature, seeds, positions, draft, draft_stats, k, gumbel)
    if use_triton(target, backend):
        from specdec_kernels.residual_sample import triton as kernel

        return kernel.residual_sample(*inputs)
    return reference.residual_sample(*inputs)
