"""Chain acceptance: one program a request walks its drafts."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.device import uniform
from specdec_kernels.draw_plan import DrawPlan

ACCEPT_ROLE = tl.constexpr(2)
PLAIN, ONE_HOT, DIFFERENCE, FIXED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)


@triton.jit
def accept_chain(
    target_logprob, target_argmax, target_draw, drafts, num_drafts, row_start, temperature, seeds, positions,
    draft_logprob, rates, num_accepted, kind, token, rho, k,
    HAS_DRAFT_LAW: tl.constexpr, HAS_RATES: tl.constexpr, COUPLED: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    start = tl.load(row_start + r)
    greedy = tl.load(temperature + r) == 0
    seed, position = tl.load(seeds + r), tl.load(positions + r)
    count = 0
    alive = 1  # 1 while every draft so far was accepted, 0 after a rejection, -1 after a placeholder
    for i in range(0, tl.load(num_drafts + r)):
        x = tl.load(drafts + r * k + i)
        if COUPLED:
            own = tl.where(greedy, tl.load(target_argmax + start + i), tl.load(target_draw + start + i))
        else:
            own = tl.load(target_argmax + start + i)
        u = uniform(seed, position + i, i + 1, ACCEPT_ROLE)
        if HAS_RATES:
            passed = u < tl.load(rates + i).to(tl.float64)
        else:
            p = tl.exp(tl.load(target_logprob + start + i)).to(tl.float64)
            if HAS_DRAFT_LAW:
                q = tl.exp(tl.load(draft_logprob + r * k + i)).to(tl.float64)
                passed = u * q < p
            else:
                passed = u < p
            if COUPLED:
                passed = x == own
            else:
                passed = tl.where(greedy, x == own, passed)
        verdict = tl.where(x < 0, -1, tl.where(passed, 1, 0))
        alive = tl.where(alive == 1, verdict, alive)
        count += tl.where(alive == 1, 1, 0)
    at = start + count
    own = tl.load(target_argmax + at)
    if COUPLED:
        own = tl.where(greedy, own, tl.load(target_draw + at))
    removed = tl.load(drafts + r * k + count, mask=alive == 0, other=-1)
    if HAS_RATES or not HAS_DRAFT_LAW:
        law = tl.where(alive == 0, ONE_HOT, PLAIN)
    else:
        law = tl.where(alive == 0, DIFFERENCE, PLAIN)
    if COUPLED:
        law = FIXED
    else:
        law = tl.where(greedy, FIXED, law)
    tl.store(num_accepted + r, count)
    tl.store(kind + r, law)
    tl.store(token + r, tl.where(law == FIXED, own, removed))
    tl.store(rho + r, 1.0)


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
    """As the reference."""
    num_requests, k = drafts.shape
    plan = empty_plan(num_requests, drafts.device)
    if num_requests:
        accept_chain[(num_requests,)](
            target_logprob, target_argmax, target_draw, drafts.contiguous(), num_drafts, row_start, temperature.float(),
            seeds, positions, draft_logprob, rates, plan.num_accepted, plan.kind, plan.token, plan.rho, k,
            HAS_DRAFT_LAW=draft_logprob is not None, HAS_RATES=rates is not None, COUPLED=target_draw is not None,
            num_warps=1,
        )  # fmt: skip
    return plan


def empty_plan(num_requests: int, device: torch.device) -> DrawPlan:
    """A plan to be written by a kernel."""
    count = torch.empty(num_requests, dtype=torch.int32, device=device)
    token = torch.empty(num_requests, dtype=torch.int64, device=device)
    return DrawPlan(count, torch.empty_like(count), token, torch.empty_like(count, dtype=torch.float32))
