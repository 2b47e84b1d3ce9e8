"""Verification of one-hot drafts in a single launch: the last program of a request to finish judges and draws."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.device import clean, scaled, uniform
from specdec_kernels.row_stats.triton import block_stats, combine_stats
from specdec_kernels.weights import law_block

ACCEPT_ROLE, RESIDUAL_ROLE, TARGET_ROLE = tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)


@triton.jit
def draw_without(
    logits, row, stride, vocab_size, block_max, block_sum, num_blocks, top, log_total, temperature, removed, u,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Inverse-CDF draw from a row's law without the token ``removed`` (-1 = keep all)."""
    lanes, local = tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    inside = lanes < num_blocks
    at = row.to(tl.int64) * num_blocks + lanes
    tops = tl.load(block_max + at, mask=inside, other=float("-inf"), cache_modifier=".cg")
    sums = tl.load(block_sum + at, mask=inside, other=0.0, cache_modifier=".cg")
    plain = sums * tl.exp(scaled(tops, top, temperature) - log_total)
    hole = tl.where((removed >= 0) & (removed < vocab_size), removed // BLOCK, 0)
    offsets = hole * BLOCK + local
    p = law_block(logits, row, stride, offsets, vocab_size, top, log_total, temperature)
    rest = tl.sum(tl.where(offsets == removed, 0.0, p), 0)
    mass = tl.where(lanes == hole, rest, plain)
    # all mass on the removed token: the rejection was a rounding event, any draw from the law is right
    empty = tl.sum(mass, 0) <= 0
    removed = tl.where(empty, -1, removed)
    mass = tl.where(empty, plain, mass)
    wide = mass.to(tl.float64)
    goal = u * tl.sum(wide, 0)
    last = tl.max(tl.where(mass > 0, lanes, 0), 0)
    block = tl.minimum(tl.sum(tl.where(inside & (tl.cumsum(wide, 0) <= goal), 1, 0), 0), last)
    below = tl.sum(tl.where(lanes < block, wide, 0.0), 0)
    offsets = block * BLOCK + local
    p = law_block(logits, row, stride, offsets, vocab_size, top, log_total, temperature)
    w = tl.where(offsets == removed, 0.0, p)
    running = tl.cumsum(w.to(tl.float64), 0) + below
    last_alive = tl.max(tl.where(w > 0, local, 0), 0)
    return block * BLOCK + tl.minimum(tl.sum(tl.where(running <= goal, 1, 0), 0), last_alive)


@triton.jit
def fused_verify_kernel(
    target, drafts, num_drafts, row_start, row_request, temperature, seeds, positions, block_max, block_sum, block_arg,
    counters, token_ids, num_sampled, invalid, stride, vocab_size, num_blocks, k,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0), tl.program_id(1)
    r = tl.load(row_request + row)
    t = tl.load(temperature + r)
    top, total, winner = block_stats(target, row, stride, block, vocab_size, t, BLOCK)
    at = row.to(tl.int64) * num_blocks + block
    tl.store(block_max + at, top)
    tl.store(block_sum + at, total)
    tl.store(block_arg + at, winner)
    tl.debug_barrier()  # every thread's stores come before the count
    n = tl.load(num_drafts + r)
    if tl.atomic_add(counters + r, 1, sem="acq_rel") == (n + 1) * num_blocks - 1:
        tl.store(counters + r, 0)
        start = tl.load(row_start + r)
        seed, position = tl.load(seeds + r), tl.load(positions + r)
        count = 0
        bad = 0
        alive = 1
        for i in range(0, n):
            if alive == 1:
                x = tl.load(drafts + r * k + i)
                best, log_total, own = combine_stats(block_max, block_sum, block_arg, start + i, num_blocks, t, BLOCKS)
                known = (x >= 0) & (x < vocab_size)
                logit = tl.load(
                    target + (start + i).to(tl.int64) * stride + x, mask=known, other=float("-inf")
                )  # fmt: skip
                bad += tl.where(best == float("-inf"), 1, 0)
                p = tl.exp(scaled(clean(logit), best, t) - log_total)
                p = tl.where(best == float("-inf"), tl.where(x == 0, 1.0, 0.0), p)
                passed = uniform(seed, position + i, i + 1, ACCEPT_ROLE) < p.to(tl.float64)
                passed = tl.where(t == 0, x == own, passed)
                alive = tl.where(x < 0, -1, tl.where(passed, 1, 0))
                if alive == 1:
                    tl.store(token_ids + r * (k + 1) + i, x)
                    count += 1
        best, log_total, own = combine_stats(block_max, block_sum, block_arg, start + count, num_blocks, t, BLOCKS)
        bad += tl.where(best == float("-inf"), 1, 0)
        token = own
        if (t > 0) & (best > float("-inf")):
            removed = tl.load(drafts + r * k + count, mask=alive == 0, other=-1)
            role = tl.where(alive == 0, RESIDUAL_ROLE, TARGET_ROLE)
            slot = tl.where(alive == 0, count + 1, 0)
            token = draw_without(
                target, start + count, stride, vocab_size, block_max, block_sum, num_blocks, best, log_total, t,
                removed, uniform(seed, position + count, slot, role), BLOCK, BLOCKS,
            ).to(token.dtype)  # fmt: skip
        tl.store(token_ids + r * (k + 1) + count, token.to(tl.int64))
        for i in range(count + 1, k + 1):
            tl.store(token_ids + r * (k + 1) + i, -1)
        tl.store(num_sampled + r, (count + 1).to(tl.int64))
        tl.store(invalid + r, (bad > 0).to(tl.uint8))


def fused_verify(
    target: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    row_request: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As the reference."""
    assert target.stride(-1) == 1
    (num_requests, k), (num_rows, vocab_size) = drafts.shape, target.shape
    num_blocks = triton.cdiv(vocab_size, block_size)
    block_max = torch.empty(num_rows, num_blocks, dtype=torch.float32, device=target.device)
    block_sum, block_arg = torch.empty_like(block_max), torch.empty_like(block_max, dtype=torch.int32)
    ids = torch.empty(num_requests, k + 1, dtype=torch.int64, device=target.device)
    count = torch.empty(num_requests, dtype=torch.int64, device=target.device)
    invalid = torch.empty(num_requests, dtype=torch.uint8, device=target.device)
    if num_requests:
        counters = torch.zeros(num_requests, dtype=torch.int32, device=target.device)
        fused_verify_kernel[(num_rows, num_blocks)](
            target, drafts.contiguous(), num_drafts, row_start, row_request, temperature.float(), seeds, positions,
            block_max, block_sum, block_arg, counters, ids, count, invalid, target.stride(0), vocab_size, num_blocks, k,
            BLOCK=block_size, BLOCKS=triton.next_power_of_2(num_blocks), num_warps=8 if block_size > 2048 else 4,
        )  # fmt: skip
    return ids, count, invalid.view(torch.bool)
