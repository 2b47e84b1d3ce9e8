"""Maximum, log-sum-exp, argmax and the log probability of one token for rows of logits, temperature folded in."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.row_stats import reference
from specdec_kernels.row_stats.reference import RowStats

__all__ = ["RowStats", "row_stats"]


def row_stats(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    tokens: torch.Tensor | None = None,
    *,
    block_size: int = 4096,
    backend: str = "auto",
) -> RowStats:
    """Statistics of rows [N, V] (any float dtype, free row stride) at temperatures [N], 0 counting as 1.

    ``tokens`` [N]: the token whose log probability is wanted, ids outside the vocabulary give -inf.
    NaN logits count as -inf. A row without any finite logit has maximum -inf and its law on token 0.
    """
    if use_triton(logits, backend):
        from specdec_kernels.row_stats import triton as kernel

        return kernel.row_stats(logits, temperature, tokens, block_size)
    return reference.row_stats(logits, temperature, tokens, block_size)
