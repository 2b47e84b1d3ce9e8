"""n-gram lookup: a program per (request, block of positions) scores its matches, then one per request drafts."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def score_positions(
    history, lengths, scores, stride, num_blocks, min_n, max_n, BLOCK: tl.constexpr, RIGHTMOST: tl.constexpr
):
    """Best score of one block: match length first, then the tie rule; -1 without a match."""
    r, block = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + r)
    base = history + r.to(tl.int64) * stride
    end = block * BLOCK + tl.arange(0, BLOCK)  # last token of the earlier occurrence
    usable = end < length - 1
    matched = tl.zeros((BLOCK,), tl.int32)
    alive = usable
    for j in range(0, max_n):
        within = alive & (end - j >= 0)
        earlier = tl.load(base + end - j, mask=within, other=-1)
        suffix = tl.load(base + length - 1 - j, mask=j < length, other=-2)
        alive = within & (earlier == suffix)
        matched += tl.where(alive, 1, 0)
    if RIGHTMOST:
        place = end
    else:
        place = length - end
    score = matched.to(tl.int64) * (length + 1) + place
    tl.store(scores + r.to(tl.int64) * num_blocks + block, tl.max(tl.where(matched >= min_n, score, -1), 0))


@triton.jit
def draft_after_match(
    history, lengths, scores, drafts, stride, num_blocks, k, BLOCKS: tl.constexpr, WIDTH: tl.constexpr,
    RIGHTMOST: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    length = tl.load(lengths + r)
    lanes = tl.arange(0, BLOCKS)
    best = tl.max(tl.load(scores + r.to(tl.int64) * num_blocks + lanes, mask=lanes < num_blocks, other=-1), 0)
    place = best % (length + 1)
    if not RIGHTMOST:
        place = length - place
    begin = tl.where(best >= 0, place + 1, length)
    i = tl.arange(0, WIDTH)
    found = (begin + i < length) & (i < k)
    token = tl.load(history + r.to(tl.int64) * stride + begin + i, mask=found, other=-1)
    tl.store(drafts + r * k + i, tl.where(found, token.to(tl.int64), -1), mask=i < k)


def ngram_match(
    history: torch.Tensor, lengths: torch.Tensor, min_n: int, max_n: int, k: int, rightmost: bool, block_size: int
) -> torch.Tensor:
    """As the reference."""
    assert history.stride(-1) == 1
    num_requests, capacity = history.shape
    num_blocks = triton.cdiv(capacity, block_size)
    drafts = torch.empty(num_requests, k, dtype=torch.int64, device=history.device)
    scores = torch.empty(num_requests, num_blocks, dtype=torch.int64, device=history.device)
    if num_requests and k:
        score_positions[(num_requests, num_blocks)](
            history, lengths, scores, history.stride(0), num_blocks, min_n, max_n, BLOCK=block_size,
            RIGHTMOST=rightmost, num_warps=4,
        )  # fmt: skip
        draft_after_match[(num_requests,)](
            history, lengths, scores, drafts, history.stride(0), num_blocks, k,
            BLOCKS=triton.next_power_of_2(num_blocks), WIDTH=triton.next_power_of_2(k), RIGHTMOST=rightmost,
            num_warps=1,
        )  # fmt: skip
    return drafts
