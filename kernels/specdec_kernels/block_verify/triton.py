"""Block verification: a scan of rho, residual masses per (row, block), then a scan of the tests."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.accept.triton import empty_plan
from specdec_kernels.device import uniform
from specdec_kernels.draw_plan import DrawPlan
from specdec_kernels.row_stats.reference import RowStats
from specdec_kernels.weights import law_block

ACCEPT_ROLE = tl.constexpr(2)
PLAIN, ONE_HOT, DIFFERENCE, FIXED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)


@triton.jit
def prefix_masses(
    target_logprob, draft_logprob, drafts, num_drafts, row_start, rho, length, k, HAS_DRAFT_LAW: tl.constexpr
):
    """rho_0..rho_n of one request, and n: its drafts before the first placeholder."""
    r = tl.program_id(0)
    start = tl.load(row_start + r)
    mass = 1.0
    n = 0
    alive = 1
    tl.store(rho + r * (k + 1), mass)
    for i in range(0, tl.load(num_drafts + r)):
        alive = tl.where(tl.load(drafts + r * k + i) < 0, 0, alive)
        p = tl.exp(tl.load(target_logprob + start + i))
        if HAS_DRAFT_LAW:
            q = tl.exp(tl.load(draft_logprob + r * k + i))
            step = tl.where(q > 0, mass * p / tl.where(q > 0, q, 1.0), tl.where(mass * p > 0, 1.0, 0.0))
        else:
            step = mass * p
        mass = tl.minimum(step, 1.0)
        n += alive
        tl.store(rho + r * (k + 1) + i + 1, mass)
    tl.store(length + r, n)


@triton.jit
def residual_masses(
    target, target_max, target_lse, draft, draft_max, draft_lse, rho, length, row_start, temperature, masses,
    stride, draft_stride, vocab_size, draft_vocab, k, num_blocks, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum over one block of max(rho_i p(y) - q(y), 0) where i = 1..n-1 drafts were kept."""
    r, i, block = tl.program_id(0) // k, tl.program_id(0) % k, tl.program_id(1)
    t = tl.load(temperature + r)
    if (i >= 1) & (i < tl.load(length + r)) & (t > 0):
        row, draft_row = tl.load(row_start + r) + i, r * k + i
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        p = law_block(target, row, stride, offsets, vocab_size, tl.load(target_max + row), tl.load(target_lse + row), t)
        q = law_block(
            draft, draft_row, draft_stride, offsets, draft_vocab, tl.load(draft_max + draft_row),
            tl.load(draft_lse + draft_row), t,
        )  # fmt: skip
        w = tl.maximum(tl.load(rho + r * (k + 1) + i) * p - q, 0.0)
        w = tl.where(offsets < vocab_size, w, 0.0)
        tl.store(masses + (r * k + i).to(tl.int64) * num_blocks + block, tl.sum(w, 0))


@triton.jit
def block_accept(
    target_logprob, target_argmax, drafts, row_start, temperature, seeds, positions, rho, length, masses,
    num_accepted, kind, token, scale, k, num_blocks, HAS_DRAFT_LAW: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The longest prefix whose test passes; greedy requests keep the prefix that equals the argmax."""
    r = tl.program_id(0)
    start, n = tl.load(row_start + r), tl.load(length + r)
    greedy = tl.load(temperature + r) == 0
    seed, position = tl.load(seeds + r), tl.load(positions + r)
    lanes = tl.arange(0, BLOCKS)
    count = 0
    matched = 0
    for i in range(1, n + 1):
        kept = tl.load(rho + r * (k + 1) + i)
        if HAS_DRAFT_LAW:
            written = tl.where(greedy, 0, tl.where(i < n, num_blocks, 0))
            at = masses + (r * k + i).to(tl.int64) * num_blocks + lanes
            mass = tl.sum(tl.load(at, mask=lanes < written, other=0.0), 0)
        else:
            mass = kept * (1.0 - tl.exp(tl.load(target_logprob + start + i, mask=i < n, other=0.0)))
        below = mass + 1.0 - kept
        h = tl.where(below > 0, mass / tl.where(below > 0, below, 1.0), 1.0)
        h = tl.where(i == n, kept, h)
        u = uniform(seed, position + i - 1, i, ACCEPT_ROLE)
        count = tl.where(u < h.to(tl.float64), i, count)
        same = tl.load(drafts + r * k + i - 1) == tl.load(target_argmax + start + i - 1)
        matched += tl.where(same & (matched == i - 1), 1, 0)
    count = tl.where(greedy, matched, count)
    if HAS_DRAFT_LAW:
        law = tl.where(count < n, DIFFERENCE, PLAIN)
    else:
        law = tl.where(count < n, ONE_HOT, PLAIN)
    law = tl.where(greedy, FIXED, law)
    removed = tl.load(drafts + r * k + count, mask=count < n, other=-1)
    tl.store(num_accepted + r, count)
    tl.store(kind + r, law)
    tl.store(token + r, tl.where(greedy, tl.load(target_argmax + start + count), removed))
    tl.store(scale + r, tl.where(law == DIFFERENCE, tl.load(rho + r * (k + 1) + count), 1.0))


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
    """As the reference."""
    num_requests, k = drafts.shape
    plan = empty_plan(num_requests, drafts.device)
    drafts, temperature, block = drafts.contiguous(), temperature.float(), stats.block_size
    vocab_size, num_blocks = target.shape[1], stats.block_max.shape[1]
    rho = torch.empty(num_requests, k + 1, dtype=torch.float32, device=drafts.device)
    length = torch.empty(num_requests, dtype=torch.int32, device=drafts.device)
    has_law = draft is not None and draft_stats is not None
    masses = torch.empty(num_requests * k if has_law else 0, num_blocks, dtype=torch.float32, device=drafts.device)
    if not num_requests:
        return plan
    prefix_masses[(num_requests,)](
        stats.token_logprob, draft_stats.token_logprob if has_law else None, drafts, num_drafts, row_start, rho, length,
        k, HAS_DRAFT_LAW=has_law, num_warps=1,
    )  # fmt: skip
    if has_law and k > 1:
        residual_masses[(num_requests * k, num_blocks)](
            target, stats.maximum, stats.lse, draft, draft_stats.maximum, draft_stats.lse, rho, length, row_start,
            temperature, masses, target.stride(0), draft.stride(0), vocab_size, draft.shape[1], k, num_blocks,
            BLOCK=block, num_warps=8 if block > 2048 else 4,
        )  # fmt: skip
    block_accept[(num_requests,)](
        stats.token_logprob, stats.argmax, drafts, row_start, temperature, seeds, positions, rho, length, masses,
        plan.num_accepted, plan.kind, plan.token, plan.rho, k, num_blocks, HAS_DRAFT_LAW=has_law,
        BLOCKS=triton.next_power_of_2(num_blocks), num_warps=1,
    )  # fmt: skip
    return plan
