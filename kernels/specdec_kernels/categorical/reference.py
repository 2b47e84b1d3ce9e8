"""Draws from rows of logits in plain PyTorch."""

from __future__ import annotations

import torch

from specdec_kernels.philox import reference as philox
from specdec_kernels.row_stats.reference import clean, scaled


def categorical(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    role: int,
    gumbel: bool,
) -> torch.Tensor:
    """[N] int64; see the package."""
    x = clean(logits)
    z = scaled(x, x.amax(-1), temperature)
    if gumbel:
        drawn = (z + philox.gumbel(seeds, positions, slots, role, x.shape[1])).argmax(-1)
    else:
        weights = z.exp()
        cumulative = weights.double().cumsum(-1)
        goal = philox.uniform(seeds, positions, slots, role)[:, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, goal, right=True)[:, 0]
        last = x.shape[1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(-1)
        drawn = torch.minimum(drawn, last)
    fixed = (temperature == 0) | (x.amax(-1) == -torch.inf)
    return torch.where(fixed, x.argmax(-1), drawn)
