"""Block verification in plain PyTorch, one request after the other. Source: arXiv 2403.10444."""

from __future__ import annotations

import torch

from specdec_kernels.draw_plan import DrawPlan, Kind
from specdec_kernels.philox import words
from specdec_kernels.philox.roles import Role
from specdec_kernels.residual_sample.reference import row_law
from specdec_kernels.row_stats.reference import RowStats


def block_verify(
    target: torch.Tensor,
    stats: RowStats,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    draft: torch.Tensor | None,
    draft_stats: RowStats | None,
) -> DrawPlan:
    """The plan of each request; see the package."""
    accepted, kinds, tokens, scales = [], [], [], []
    k = drafts.shape[1]
    for r in range(len(drafts)):
        start, t = int(row_start[r]), temperature[r : r + 1]
        ids = drafts[r, : int(num_drafts[r])].tolist()
        ids = ids[: ids.index(-1)] if -1 in ids else ids
        n = len(ids)
        if float(t) == 0:
            count = 0
            while count < n and ids[count] == int(stats.argmax[start + count]):
                count += 1
            plan = (count, Kind.FIXED, int(stats.argmax[start + count]), 1.0)
        else:
            rho = [1.0]
            for i in range(n):
                p = float(stats.token_logprob[start + i].exp())
                q = 1.0 if draft_stats is None else float(draft_stats.token_logprob[r * k + i].exp())
                rho.append(min(1.0, rho[-1] * p / q) if q > 0 else float(rho[-1] * p > 0))
            count = 0
            for length in range(1, n + 1):
                if length == n:
                    h = rho[n]
                elif draft is None or draft_stats is None:
                    h = _h(rho[length], rho[length] * (1.0 - float(stats.token_logprob[start + length].exp())))
                else:
                    p_law = row_law(target, stats, start + length, t, target.shape[1])
                    q_law = row_law(draft, draft_stats, r * k + length, t, target.shape[1])
                    h = _h(rho[length], float((rho[length] * p_law - q_law).clamp(min=0).sum()))
                if words.uniform(int(seeds[r]), int(positions[r]) + length - 1, length, Role.ACCEPT) < h:
                    count = length
            rejected = Kind.ONE_HOT if draft is None else Kind.DIFFERENCE
            plan = (count, Kind.PLAIN, -1, 1.0) if count == n else (count, rejected, ids[count], rho[count])
        for values, value in zip((accepted, kinds, tokens, scales), plan, strict=True):
            values.append(value)
    device = drafts.device
    return DrawPlan(
        torch.tensor(accepted, dtype=torch.int32, device=device),
        torch.tensor(kinds, dtype=torch.int32, device=device),
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor(scales, dtype=torch.float32, device=device),
    )


def _h(rho: float, mass: float) -> float:
    below = mass + 1.0 - rho
    return mass / below if below > 0 else 1.0
