"""n-gram drafting on the device that holds the token history."""

from __future__ import annotations

import torch

from specdec_kernels.backend import use_triton
from specdec_kernels.ngram_match import reference


def ngram_match(
    history: torch.Tensor,  # [R, L] int32 or int64 token ids, free row stride
    lengths: torch.Tensor,  # [R] int32 or int64, tokens used of each row
    *,
    min_n: int,
    max_n: int,
    k: int,
    rightmost: bool = False,
    block_size: int = 1024,
    backend: str = "auto",
) -> torch.Tensor:
    """[R, k] int64 drafts, -1 where there is none.

    Takes the longest suffix of min_n..max_n tokens that also ends before the last token, and proposes what followed
    that occurrence, which may overlap the suffix. Among occurrences of that length the leftmost or the rightmost.
    """
    if not 1 <= min_n <= max_n:
        raise ValueError(f"n-gram window {min_n}..{max_n} must satisfy 1 <= min_n <= max_n")
    inputs = (history, lengths, min_n, max_n, k, rightmost)
    if use_triton(history, backend):
        from specdec_kernels.ngram_match import triton as kernel

        return kernel.ngram_match(*inputs, block_size)
    return reference.ngram_match(*inputs)
