"""Chain acceptance in plain PyTorch, one request after the other."""

from __future__ import annotations

import torch

from specdec_kernels.draw_plan import DrawPlan, Kind
from specdec_kernels.philox import words
from specdec_kernels.philox.roles import Role


def accept(
    target_logprob: torch.Tensor,
    target_argmax: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    draft_logprob: torch.Tensor | None,
    rates: torch.Tensor | None,
    target_draw: torch.Tensor | None,
) -> DrawPlan:
    """The plan of each request; see the package."""
    accepted, kinds, tokens = [], [], []
    for r in range(len(drafts)):
        start, greedy = int(row_start[r]), float(temperature[r]) == 0
        fixed = target_draw if target_draw is not None and not greedy else target_argmax
        follows_fixed = rates is None and (greedy or target_draw is not None)
        count, rejected = 0, False
        for i in range(int(num_drafts[r])):
            token = int(drafts[r, i])
            if token < 0:
                break
            if follows_fixed:
                rejected = token != int(fixed[start + i])
            else:
                u = words.uniform(int(seeds[r]), int(positions[r]) + i, i + 1, Role.ACCEPT)
                if rates is not None:
                    rejected = not u < float(rates[i])
                else:
                    p = float(target_logprob[start + i].exp())
                    q = 1.0 if draft_logprob is None else float(draft_logprob[r, i].exp())
                    rejected = not u * q < p
            if rejected:
                break
            count += 1
        accepted.append(count)
        if greedy or follows_fixed:
            kinds.append(Kind.FIXED)
            tokens.append(int(fixed[start + count]))
        elif not rejected:
            kinds.append(Kind.PLAIN)
            tokens.append(-1)
        else:
            kinds.append(Kind.ONE_HOT if draft_logprob is None or rates is not None else Kind.DIFFERENCE)
            tokens.append(int(drafts[r, count]))
    device = drafts.device
    return DrawPlan(
        torch.tensor(accepted, dtype=torch.int32, device=device),
        torch.tensor(kinds, dtype=torch.int32, device=device),
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.ones(len(drafts), dtype=torch.float32, device=device),
    )
