"""n-gram lookup in plain PyTorch: the longest suffix that occurred before, then what followed it."""

from __future__ import annotations

import torch


def ngram_match(
    history: torch.Tensor, lengths: torch.Tensor, min_n: int, max_n: int, k: int, rightmost: bool
) -> torch.Tensor:
    """[R, k] int64; see the package."""
    out = torch.full((len(history), k), -1, dtype=torch.int64, device=history.device)
    for r, length in enumerate(lengths.tolist()):
        tokens = history[r, :length]
        for n in range(min(max_n, length - 1), min_n - 1, -1):
            # windows that end before the last token, so at least one token follows
            windows = tokens[:-1].unfold(0, n, 1)
            hits = (windows == tokens[length - n :]).all(-1).nonzero()[:, 0]
            if len(hits):
                begin = int(hits[-1 if rightmost else 0]) + n
                follow = tokens[begin : begin + k]
                out[r, : len(follow)] = follow
                break
    return out
