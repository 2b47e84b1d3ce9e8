"""Lays out last tokens and drafts of R requests as the flattened rows of one verify forward."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.gather_drafts import reference
from specdec_kernels.gather_drafts.reference import VerifyRows

__all__ = ["VerifyRows", "gather_drafts"]


def gather_drafts(
    last_tokens: torch.Tensor,  # [R] int64
    drafts: torch.Tensor,  # [R, K] int64, -1 = no draft here nor after
    num_drafts: torch.Tensor,  # [R] int32, rows - 1 of each request
    row_start: torch.Tensor,  # [R] int32
    positions: torch.Tensor,  # [R] int64, of the first token this round may emit
    num_rows: int,
    *,
    backend: str = "auto",
) -> VerifyRows:
    """Rows of request r follow each other from ``row_start[r]``: its last token, then its drafts."""
    inputs = (last_tokens, drafts, num_drafts, row_start, positions, num_rows)
    if use_triton(drafts, backend):
        from specdec_kernels.gather_drafts import triton as kernel

        return kernel.gather_drafts(*inputs)
    return reference.gather_drafts(*inputs)
