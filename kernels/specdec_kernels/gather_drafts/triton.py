"""The flattened rows of a verify forward: one program a request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.gather_drafts.reference import VerifyRows


@triton.jit
def gather_rows(
    last_tokens, drafts, num_drafts, row_start, positions, input_ids, row_positions, request, judged, k,
    WIDTH: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0)
    n, start = tl.load(num_drafts + r), tl.load(row_start + r)
    i = tl.arange(0, WIDTH)
    draft = tl.load(drafts + r * k + i - 1, mask=(i >= 1) & (i <= n), other=0)
    token = tl.where(i == 0, tl.load(last_tokens + r), tl.maximum(draft, 0))
    tl.store(input_ids + start + i, token, mask=i <= n)
    tl.store(row_positions + start + i, tl.load(positions + r) - 1 + i, mask=i <= n)
    tl.store(request + start + i, r + i * 0, mask=i <= n)
    tl.store(judged + start + i, tl.load(drafts + r * k + i, mask=i < n, other=-1), mask=i <= n)


def gather_drafts(
    last_tokens: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    positions: torch.Tensor,
    num_rows: int,
) -> VerifyRows:
    """As the reference."""
    num_requests, k = drafts.shape
    ids = torch.empty(num_rows, dtype=torch.int64, device=drafts.device)
    rows = VerifyRows(ids, torch.empty_like(ids), torch.empty_like(ids, dtype=torch.int32), torch.empty_like(ids))
    if num_requests:
        gather_rows[(num_requests,)](
            last_tokens, drafts.contiguous(), num_drafts, row_start, positions, rows.input_ids, rows.positions,
            rows.request, rows.judged, k, WIDTH=triton.next_power_of_2(k + 1), num_warps=1,
        )  # fmt: skip
    return rows
