"""Greedy and one-hot verification in one launch, for small batches where launches cost more than bytes."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.fused_verify import reference


def fused_verify(
    target: torch.Tensor,  # [N, V] logits, before temperature
    drafts: torch.Tensor,  # [R, K] int64, -1 = no draft here nor after
    num_drafts: torch.Tensor,  # [R] int32; request r owns rows row_start[r] .. row_start[r] + num_drafts[r]
    row_start: torch.Tensor,  # [R] int32
    row_request: torch.Tensor,  # [N] int32, the request of each row
    temperature: torch.Tensor,  # [R], 0 = greedy
    seeds: torch.Tensor,  # [R] int64
    positions: torch.Tensor,  # [R] int64, of the first token this round may emit
    *,
    block_size: int = 4096,
    backend: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids [R, K + 1] int64 (-1 beyond the count), counts [R] int64 and invalid [R] bool; K = 0 is plain sampling.

    A request is invalid if a row that was read had no finite logit.

    The same tokens as row_stats, accept and residual_sample with one-hot drafts and inverse-CDF draws.
    """
    inputs = (target, drafts, num_drafts, row_start, row_request, temperature, seeds, positions, block_size)
    if use_triton(target, backend):
        from specdec_kernels.fused_verify import triton as kernel

        return kernel.fused_verify(*inputs)
    return reference.fused_verify(*inputs)
