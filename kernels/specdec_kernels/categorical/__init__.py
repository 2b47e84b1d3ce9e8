"""One draw from each row of logits: plain sampling, draft proposals, and the target's own draws of coupled rounds."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.categorical import reference


def categorical(
    logits: torch.Tensor,  # [N, V], before temperature, any float dtype and row stride
    temperature: torch.Tensor,  # [N], 0 = argmax, lowest id on ties
    seeds: torch.Tensor,  # [N] int64
    positions: torch.Tensor,  # [N] int64, absolute position of the token to draw
    slots: torch.Tensor,  # [N] int64
    role: int,
    *,
    gumbel: bool = False,
    block_size: int = 4096,
    backend: str = "auto",
) -> torch.Tensor:
    """[N] int64, by inverse CDF in the order of ids, or as argmax of logits / T plus Gumbel noise."""
    inputs = (logits, temperature, seeds, positions, slots, int(role), gumbel)
    if use_triton(logits, backend):
        from specdec_kernels.categorical import triton as kernel

        return kernel.categorical(*inputs, block_size)
    return reference.categorical(*inputs)
