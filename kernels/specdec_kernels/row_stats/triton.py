"""Row statistics in one read of the rows: a program per (row, block), then one per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.device import clean, load_logits, scaled
from specdec_kernels.row_stats.reference import RowStats


@triton.jit
def block_stats(logits, row, stride, block, vocab_size, temperature, BLOCK: tl.constexpr):
    """Maximum, sum of exp((x - max) / T) and argmax of one block of one row."""
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    x = load_logits(logits, row, stride, offsets, vocab_size)
    top = tl.max(x, 0)
    total = tl.sum(tl.exp(scaled(x, top, temperature)), 0)
    # a block without any finite logit must not name a padded lane
    winner = tl.where(top == float("-inf"), 0, tl.argmax(x, 0, tie_break_left=True))
    return top, total, block * BLOCK + winner


@triton.jit
def combine_stats(block_max, block_sum, block_arg, row, num_blocks, temperature, BLOCKS: tl.constexpr):
    """Maximum, log of the sum of exp((x - max) / T) and argmax of one row from its blocks."""
    lanes = tl.arange(0, BLOCKS)
    inside = lanes < num_blocks
    # past L1: in the fused kernel other programs wrote these a moment ago
    at = row.to(tl.int64) * num_blocks + lanes
    tops = tl.load(block_max + at, mask=inside, other=float("-inf"), cache_modifier=".cg")
    sums = tl.load(block_sum + at, mask=inside, other=0.0, cache_modifier=".cg")
    args = tl.load(block_arg + at, mask=inside, other=0, cache_modifier=".cg")
    top = tl.max(tops, 0)
    first = tl.argmax(tops, 0, tie_break_left=True)
    winner = tl.sum(tl.where(lanes == first, args, 0), 0)
    total = tl.sum(tl.where(inside, sums * tl.exp(scaled(tops, top, temperature)), 0.0), 0)
    return top, tl.where(top > float("-inf"), tl.log(tl.maximum(total, 1.0e-30)), 0.0), winner


@triton.jit
def row_stats_blocks(
    logits, temperature, block_max, block_sum, block_arg, stride, vocab_size, num_blocks, BLOCK: tl.constexpr
):
    row, block = tl.program_id(0), tl.program_id(1)
    top, total, winner = block_stats(logits, row, stride, block, vocab_size, tl.load(temperature + row), BLOCK)
    at = row.to(tl.int64) * num_blocks + block
    tl.store(block_max + at, top)
    tl.store(block_sum + at, total)
    tl.store(block_arg + at, winner)


@triton.jit
def row_stats_combine(
    logits, temperature, tokens, block_max, block_sum, block_arg, maximum, lse, argmax, token_logprob,
    stride, vocab_size, num_blocks, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    t = tl.load(temperature + row)
    top, log_total, winner = combine_stats(block_max, block_sum, block_arg, row, num_blocks, t, BLOCKS)
    tl.store(maximum + row, top)
    tl.store(lse + row, log_total)
    tl.store(argmax + row, winner.to(tl.int64))
    token = tl.load(tokens + row)
    known = (token >= 0) & (token < vocab_size)
    x = tl.load(logits + row.to(tl.int64) * stride + token, mask=known, other=float("-inf"))
    logprob = scaled(clean(x), top, t) - log_total
    logprob = tl.where(known & (top > float("-inf")), logprob, float("-inf"))
    tl.store(token_logprob + row, tl.where((top == float("-inf")) & (token == 0), 0.0, logprob))


def row_stats(
    logits: torch.Tensor, temperature: torch.Tensor, tokens: torch.Tensor | None, block_size: int
) -> RowStats:
    """As the reference; rows must be contiguous in the vocabulary, their stride is free."""
    assert logits.stride(-1) == 1
    num_rows, vocab_size = logits.shape
    num_blocks = triton.cdiv(vocab_size, block_size)
    tokens = torch.full((num_rows,), -1, device=logits.device) if tokens is None else tokens.long()
    temperature = temperature.float()
    block_max = torch.empty(num_rows, num_blocks, dtype=torch.float32, device=logits.device)
    block_sum, block_arg = torch.empty_like(block_max), torch.empty_like(block_max, dtype=torch.int32)
    maximum = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    lse, logprob = torch.empty_like(maximum), torch.empty_like(maximum)
    argmax = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if num_rows:
        row_stats_blocks[(num_rows, num_blocks)](
            logits, temperature, block_max, block_sum, block_arg, logits.stride(0), vocab_size, num_blocks,
            BLOCK=block_size, num_warps=8 if block_size > 2048 else 4,
        )  # fmt: skip
        row_stats_combine[(num_rows,)](
            logits, temperature, tokens, block_max, block_sum, block_arg, maximum, lse, argmax, logprob,
            logits.stride(0), vocab_size, num_blocks, BLOCKS=triton.next_power_of_2(num_blocks), num_warps=1,
        )  # fmt: skip
    return RowStats(maximum, lse, argmax, logprob, block_max, block_sum, block_size)
