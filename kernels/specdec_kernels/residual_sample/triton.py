"""Draws after verification: inverse CDF in two levels, or Gumbel noise over the row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.device import gumbel_block, scaled, uniform
from specdec_kernels.draw_plan import DrawPlan
from specdec_kernels.row_stats.reference import RowStats
from specdec_kernels.weights import law_block, weights_block

PLAIN, ONE_HOT, DIFFERENCE, FIXED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
RESIDUAL_ROLE, TARGET_ROLE = tl.constexpr(3), tl.constexpr(4)
GUMBEL_BLOCK = 2048


@triton.jit
def law_masses(
    target, target_max, target_lse, block_max, block_sum, draft, draft_max, draft_lse, row_start, num_accepted, kind,
    token, rho, temperature, masses, stride, draft_stride, vocab_size, draft_vocab, k, num_blocks,
    BLOCK: tl.constexpr, HAS_DRAFT_LAW: tl.constexpr,
):  # fmt: skip
    """Mass of one block of a request's law; only blocks that the row statistics do not know already are read."""
    r, block = tl.program_id(0), tl.program_id(1)
    law, x, t = tl.load(kind + r), tl.load(token + r), tl.load(temperature + r)
    count = tl.load(num_accepted + r)
    row, draft_row = tl.load(row_start + r) + count, r * k + count
    top, lse = tl.load(target_max + row), tl.load(target_lse + row)
    at = row.to(tl.int64) * num_blocks + block
    mass = tl.load(block_sum + at) * tl.exp(scaled(tl.load(block_max + at), top, t) - lse)
    mass = tl.where(top == float("-inf"), tl.where(block == 0, 1.0, 0.0), mass)
    touched = (law == ONE_HOT) & (x >= block * BLOCK) & (x < block * BLOCK + BLOCK)
    if touched | (law == DIFFERENCE):
        d_top, d_lse = 0.0, 0.0
        if HAS_DRAFT_LAW:
            d_top = tl.load(draft_max + draft_row, mask=law == DIFFERENCE, other=0.0)
            d_lse = tl.load(draft_lse + draft_row, mask=law == DIFFERENCE, other=0.0)
        w = weights_block(
            target, row, stride, vocab_size, top, lse, draft, draft_row, draft_stride, draft_vocab, d_top, d_lse,
            block * BLOCK + tl.arange(0, BLOCK), t, law, x, tl.load(rho + r), HAS_DRAFT_LAW,
        )  # fmt: skip
        mass = tl.sum(w, 0)
    tl.store(masses + r.to(tl.int64) * num_blocks + block, mass)


@triton.jit
def pick_token(
    target, target_max, target_lse, block_max, block_sum, draft, draft_max, draft_lse, row_start, num_accepted, kind,
    token, rho, temperature, seeds, positions, masses, out, stride, draft_stride, vocab_size, draft_vocab, k,
    num_blocks, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, HAS_DRAFT_LAW: tl.constexpr,
):  # fmt: skip
    """The first token whose cumulative weight exceeds u of the total, block first, then inside the block."""
    r = tl.program_id(0)
    law, x, t = tl.load(kind + r), tl.load(token + r), tl.load(temperature + r)
    if law == FIXED:
        tl.store(out + r, x)
    else:
        count = tl.load(num_accepted + r)
        row, draft_row = tl.load(row_start + r) + count, r * k + count
        top, lse = tl.load(target_max + row), tl.load(target_lse + row)
        lanes = tl.arange(0, BLOCKS)
        inside = lanes < num_blocks
        mass = tl.load(masses + r.to(tl.int64) * num_blocks + lanes, mask=inside, other=0.0)
        role = tl.where(law == PLAIN, TARGET_ROLE, RESIDUAL_ROLE)
        slot = tl.where(law == PLAIN, 0, count + 1)
        u = uniform(tl.load(seeds + r), tl.load(positions + r) + count, slot, role)
        # p and q agree to rounding: any draw from p is right
        empty = tl.sum(mass, 0) <= 0
        at = row.to(tl.int64) * num_blocks + lanes
        tops = tl.load(block_max + at, mask=inside, other=float("-inf"))
        plain = tl.load(block_sum + at, mask=inside, other=0.0) * tl.exp(scaled(tops, top, t) - lse)
        plain = tl.where(top == float("-inf"), tl.where(lanes == 0, 1.0, 0.0), plain)
        mass = tl.where(empty, tl.where(inside, plain, 0.0), mass)
        law = tl.where(empty, PLAIN, law)
        wide = mass.to(tl.float64)
        cumulative = tl.cumsum(wide, 0)
        goal = u * tl.sum(wide, 0)
        last = tl.max(tl.where(mass > 0, lanes, 0), 0)
        block = tl.minimum(tl.sum(tl.where(inside & (cumulative <= goal), 1, 0), 0), last)
        below = tl.sum(tl.where(lanes < block, wide, 0.0), 0)
        d_top, d_lse = 0.0, 0.0
        if HAS_DRAFT_LAW:
            d_top = tl.load(draft_max + draft_row, mask=law == DIFFERENCE, other=0.0)
            d_lse = tl.load(draft_lse + draft_row, mask=law == DIFFERENCE, other=0.0)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        w = weights_block(
            target, row, stride, vocab_size, top, lse, draft, draft_row, draft_stride, draft_vocab, d_top, d_lse,
            offsets, t, law, x, tl.load(rho + r), HAS_DRAFT_LAW,
        )  # fmt: skip
        running = tl.cumsum(w.to(tl.float64), 0) + below
        local = tl.arange(0, BLOCK)
        last_alive = tl.max(tl.where(w > 0, local, 0), 0)
        chosen = tl.minimum(tl.sum(tl.where(running <= goal, 1, 0), 0), last_alive)
        tl.store(out + r, (block * BLOCK + chosen).to(tl.int64))


@triton.jit
def gumbel_blocks(
    target, target_max, target_lse, draft, draft_max, draft_lse, row_start, num_accepted, kind, token, rho,
    temperature, seeds, positions, best, best_at, plain_best, plain_at, stride, draft_stride, vocab_size, draft_vocab,
    k, num_blocks, BLOCK: tl.constexpr, HAS_DRAFT_LAW: tl.constexpr,
):  # fmt: skip
    """Best noisy log weight of one block, and the best of the plain law in case the residual is empty."""
    r, block = tl.program_id(0), tl.program_id(1)
    law, x, t = tl.load(kind + r), tl.load(token + r), tl.load(temperature + r)
    if law != FIXED:
        count = tl.load(num_accepted + r)
        row, draft_row = tl.load(row_start + r) + count, r * k + count
        top, lse = tl.load(target_max + row), tl.load(target_lse + row)
        d_top, d_lse = 0.0, 0.0
        if HAS_DRAFT_LAW:
            d_top = tl.load(draft_max + draft_row, mask=law == DIFFERENCE, other=0.0)
            d_lse = tl.load(draft_lse + draft_row, mask=law == DIFFERENCE, other=0.0)
        role = tl.where(law == PLAIN, TARGET_ROLE, RESIDUAL_ROLE)
        slot = tl.where(law == PLAIN, 0, count + 1)
        noise = gumbel_block(tl.load(seeds + r), tl.load(positions + r) + count, slot, role, block * BLOCK, BLOCK)
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        w = weights_block(
            target, row, stride, vocab_size, top, lse, draft, draft_row, draft_stride, draft_vocab, d_top, d_lse,
            offsets, t, law, x, tl.load(rho + r), HAS_DRAFT_LAW,
        )  # fmt: skip
        p = law_block(target, row, stride, offsets, vocab_size, top, lse, t)
        score = tl.where(w > 0, tl.log(tl.where(w > 0, w, 1.0)) + noise, float("-inf"))
        plain = tl.where(p > 0, tl.log(tl.where(p > 0, p, 1.0)) + noise, float("-inf"))
        at = r.to(tl.int64) * num_blocks + block
        tl.store(best + at, tl.max(score, 0))
        tl.store(best_at + at, block * BLOCK + tl.argmax(score, 0, tie_break_left=True))
        tl.store(plain_best + at, tl.max(plain, 0))
        tl.store(plain_at + at, block * BLOCK + tl.argmax(plain, 0, tie_break_left=True))


@triton.jit
def gumbel_pick(best, best_at, plain_best, plain_at, kind, token, out, num_blocks, BLOCKS: tl.constexpr):
    """The best of a request's blocks."""
    r = tl.program_id(0)
    lanes = tl.arange(0, BLOCKS)
    fixed = tl.load(kind + r) == FIXED
    inside = lanes < tl.where(fixed, 0, num_blocks)
    at = r.to(tl.int64) * num_blocks + lanes
    score = tl.load(best + at, mask=inside, other=float("-inf"))
    plain = tl.load(plain_best + at, mask=inside, other=float("-inf"))
    empty = tl.max(score, 0) == float("-inf")
    first = tl.argmax(tl.where(empty, plain, score), 0, tie_break_left=True)
    ids = tl.load(best_at + at, mask=inside, other=0)
    ids = tl.where(empty, tl.load(plain_at + at, mask=inside, other=0), ids)
    winner = tl.sum(tl.where(lanes == first, ids, 0), 0).to(tl.int64)
    tl.store(out + r, tl.where(fixed, tl.load(token + r), winner))


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
    """As the reference."""
    num_requests, num_blocks, block = len(plan.kind), stats.block_max.shape[1], stats.block_size
    out = torch.empty(num_requests, dtype=torch.int64, device=target.device)
    if not num_requests:
        return out
    has_law = draft is not None and draft_stats is not None
    if gumbel:  # two laws and their noise fill the registers: a smaller tile keeps them from spilling
        block = min(block, GUMBEL_BLOCK)
        num_blocks = triton.cdiv(target.shape[1], block)
    d_max, d_lse = (draft_stats.maximum, draft_stats.lse) if has_law else (None, None)
    strides = (target.stride(0), draft.stride(0) if has_law else 0)
    sizes = (*strides, target.shape[1], draft.shape[1] if has_law else 0, k, num_blocks)
    law = (row_start, plan.num_accepted, plan.kind, plan.token, plan.rho, temperature.float())
    grid, blocks = (num_requests, num_blocks), triton.next_power_of_2(num_blocks)
    warps = 8 if block >= 2048 else 4
    work = torch.empty(2, num_requests, num_blocks, dtype=torch.float32, device=target.device)
    if gumbel:
        at = torch.empty(2, num_requests, num_blocks, dtype=torch.int32, device=target.device)
        gumbel_blocks[grid](
            target, stats.maximum, stats.lse, draft, d_max, d_lse, *law, seeds, positions, work[0], at[0], work[1],
            at[1], *sizes, BLOCK=block, HAS_DRAFT_LAW=has_law, num_warps=warps,
        )  # fmt: skip
        gumbel_pick[(num_requests,)](
            work[0], at[0], work[1], at[1], plan.kind, plan.token, out, num_blocks, BLOCKS=blocks, num_warps=1
        )
        return out
    known = (target, stats.maximum, stats.lse, stats.block_max, stats.block_sum, draft, d_max, d_lse)
    law_masses[grid](*known, *law, work[0], *sizes, BLOCK=block, HAS_DRAFT_LAW=has_law, num_warps=warps)
    pick_token[(num_requests,)](
        *known, *law, seeds, positions, work[0], out, *sizes, BLOCK=block, BLOCKS=blocks, HAS_DRAFT_LAW=has_law,
        num_warps=warps,
    )  # fmt: skip
    return out
