"""Draws from plain, one-hot-residual and difference laws in plain PyTorch."""

from __future__ import annotations

import torch

from specdec_kernels.draw_plan import DrawPlan, Kind
from specdec_kernels.philox import reference as philox
from specdec_kernels.philox.roles import Role
from specdec_kernels.row_stats.reference import RowStats, clean, scaled


def row_law(
    logits: torch.Tensor, stats: RowStats, row: int, temperature: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Probabilities [vocab_size] float32 of one row; cut or padded with zeros when the row has another length."""
    z = scaled(clean(logits[row])[None], stats.maximum[row : row + 1], temperature)[0]
    law = (z - stats.lse[row]).exp()
    if stats.maximum[row] == -torch.inf:
        law = torch.zeros_like(law)
        law[0] = 1.0
    return torch.nn.functional.pad(law, (0, max(0, vocab_size - len(law))))[:vocab_size]


def draw_from(weights: torch.Tensor, u: float) -> int:
    """Inverse CDF in the order of ids: the first token whose cumulative weight exceeds u of the total."""
    cumulative = weights.double().cumsum(0)
    token = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(token, int(weights.nonzero()[-1]))


def draw_key(kind: int, count: int, position: int) -> tuple[int, int, Role]:
    """(position, slot, role) of a draw after ``count`` accepted drafts."""
    plain = kind == Kind.PLAIN
    return position + count, 0 if plain else count + 1, Role.TARGET if plain else Role.RESIDUAL


def residual_sample(
    target: torch.Tensor,
    stats: RowStats,
    plan: DrawPlan,
    row_start: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    draft: torch.Tensor | None,
    draft_stats: RowStats | None,
    k: int,
    gumbel: bool,
) -> torch.Tensor:
    """[R] int64; see the package."""
    vocab_size = target.shape[1]
    out = []
    for r in range(len(plan.kind)):
        kind, count = int(plan.kind[r]), int(plan.num_accepted[r])
        if kind == Kind.FIXED:
            out.append(int(plan.token[r]))
            continue
        t, row = temperature[r : r + 1], int(row_start[r]) + count
        weights = p = row_law(target, stats, row, t, vocab_size)
        if kind == Kind.ONE_HOT and 0 <= int(plan.token[r]) < vocab_size:
            weights = p.clone()
            weights[int(plan.token[r])] = 0.0
        elif kind == Kind.DIFFERENCE:
            assert draft is not None and draft_stats is not None
            q = row_law(draft, draft_stats, r * k + count, t, vocab_size)
            weights = (plan.rho[r] * p - q).clamp(min=0)
        if float(weights.sum()) == 0:  # p and q agree to rounding: any draw from p is right
            weights = p
        position, slot, role = draw_key(kind, count, int(positions[r]))
        key = [torch.tensor([x], device=target.device) for x in (int(seeds[r]), position, slot)]
        if gumbel:
            out.append(int((weights.log() + philox.gumbel(*key, int(role), vocab_size)[0]).argmax()))
        else:
            out.append(draw_from(weights, float(philox.uniform(*key, int(role)))))
    return torch.tensor(out, dtype=torch.int64, device=target.device)
