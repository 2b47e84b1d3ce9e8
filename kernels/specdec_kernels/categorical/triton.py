"""Draws from rows: Gumbel argmax in one read, or inverse CDF from the blocks of the row statistics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.device import gumbel_block, load_logits, scaled, uniform
from specdec_kernels.row_stats.triton import row_stats
from specdec_kernels.weights import law_block


@triton.jit
def gumbel_rows(
    logits, temperature, seeds, positions, slots, best, best_at, stride, vocab_size, num_blocks, role,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Best noisy logit of one block of one row; no noise at temperature 0."""
    row, block = tl.program_id(0), tl.program_id(1)
    t = tl.load(temperature + row)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    x = load_logits(logits, row, stride, offsets, vocab_size)
    noise = gumbel_block(
        tl.load(seeds + row), tl.load(positions + row), tl.load(slots + row), role, block * BLOCK, BLOCK
    )
    score = tl.where(t > 0, x / tl.where(t > 0, t, 1.0) + noise, x)
    score = tl.where(x == float("-inf"), float("-inf"), score)
    top = tl.max(score, 0)
    at = row.to(tl.int64) * num_blocks + block
    tl.store(best + at, top)
    winner = tl.where(top == float("-inf"), 0, tl.argmax(score, 0, tie_break_left=True))
    tl.store(best_at + at, block * BLOCK + winner)


@triton.jit
def best_of_row(best, best_at, out, num_blocks, BLOCKS: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCKS)
    at = row.to(tl.int64) * num_blocks + lanes
    score = tl.load(best + at, mask=lanes < num_blocks, other=float("-inf"))
    ids = tl.load(best_at + at, mask=lanes < num_blocks, other=0)
    first = tl.argmax(score, 0, tie_break_left=True)
    tl.store(out + row, tl.sum(tl.where(lanes == first, ids, 0), 0).to(tl.int64))


@triton.jit
def inverse_rows(
    logits, temperature, maximum, lse, argmax, block_max, block_sum, seeds, positions, slots, out, stride, vocab_size,
    num_blocks, role, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The first token whose cumulative probability exceeds u."""
    row = tl.program_id(0)
    t, top, log_total = tl.load(temperature + row), tl.load(maximum + row), tl.load(lse + row)
    if (t == 0) | (top == float("-inf")):
        tl.store(out + row, tl.load(argmax + row))
    else:
        u = uniform(tl.load(seeds + row), tl.load(positions + row), tl.load(slots + row), role)
        lanes = tl.arange(0, BLOCKS)
        inside = lanes < num_blocks
        at = row.to(tl.int64) * num_blocks + lanes
        tops = tl.load(block_max + at, mask=inside, other=float("-inf"))
        mass = tl.load(block_sum + at, mask=inside, other=0.0) * tl.exp(scaled(tops, top, t) - log_total)
        wide = mass.to(tl.float64)
        goal = u * tl.sum(wide, 0)
        last = tl.max(tl.where(mass > 0, lanes, 0), 0)
        block = tl.minimum(tl.sum(tl.where(inside & (tl.cumsum(wide, 0) <= goal), 1, 0), 0), last)
        below = tl.sum(tl.where(lanes < block, wide, 0.0), 0)
        local = tl.arange(0, BLOCK)
        p = law_block(logits, row, stride, block * BLOCK + local, vocab_size, top, log_total, t)
        running = tl.cumsum(p.to(tl.float64), 0) + below
        last_alive = tl.max(tl.where(p > 0, local, 0), 0)
        chosen = tl.minimum(tl.sum(tl.where(running <= goal, 1, 0), 0), last_alive)
        tl.store(out + row, (block * BLOCK + chosen).to(tl.int64))


def categorical(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    role: int,
    gumbel: bool,
    block_size: int,
) -> torch.Tensor:
    """As the reference."""
    assert logits.stride(-1) == 1
    num_rows, vocab_size = logits.shape
    num_blocks = triton.cdiv(vocab_size, block_size)
    out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if not num_rows:
        return out
    temperature, blocks = temperature.float(), triton.next_power_of_2(num_blocks)
    warps = 8 if block_size > 2048 else 4
    if gumbel:
        best = torch.empty(num_rows, num_blocks, dtype=torch.float32, device=logits.device)
        best_at = torch.empty_like(best, dtype=torch.int32)
        gumbel_rows[(num_rows, num_blocks)](
            logits, temperature, seeds, positions, slots, best, best_at, logits.stride(0), vocab_size, num_blocks, role,
            BLOCK=block_size, num_warps=warps,
        )  # fmt: skip
        best_of_row[(num_rows,)](best, best_at, out, num_blocks, BLOCKS=blocks, num_warps=1)
        return out
    stats = row_stats(logits, temperature, None, block_size)
    inverse_rows[(num_rows,)](
        logits, temperature, stats.maximum, stats.lse, stats.argmax, stats.block_max, stats.block_sum, seeds, positions,
        slots, out, logits.stride(0), vocab_size, num_blocks, role, BLOCK=block_size, BLOCKS=blocks, num_warps=warps,
    )  # fmt: skip
    return out
