from __future__ import annotations

import pytest
import torch
from specdec_kernels.gather_drafts import gather_drafts
from specdec_kernels.ngram_match import ngram_match


def brute_force(tokens, min_n, max_n, k, rightmost):
    for n in range(max_n, min_n - 1, -1):
        if len(tokens) <= n:
            continue
        starts = [s for s in range(len(tokens) - n) if tokens[s : s + n] == tokens[-n:]]
        if starts:
            begin = starts[-1 if rightmost else 0] + n
            out = tokens[begin : begin + k]
            return out + [-1] * (k - len(out))
    return [-1] * k


@pytest.mark.parametrize("rightmost", [False, True])
@pytest.mark.parametrize(("min_n", "max_n", "k"), [(1, 3, 4), (3, 3, 1), (2, 6, 7)])
def test_ngram_match(rightmost, min_n, max_n, k):
    generator = torch.Generator().manual_seed(min_n)
    history = torch.randint(0, 3, (7, 603), generator=generator, dtype=torch.int32)[:, :600]
    lengths = torch.tensor([600, 257, 40, max_n, 1, 0, 4])
    history[6, :4] = 2  # overlapping occurrences
    kw = {"min_n": min_n, "max_n": max_n, "k": k, "rightmost": rightmost}
    a = ngram_match(history, lengths, backend="torch", **kw)
    b = ngram_match(history, lengths, backend="triton", block_size=256, **kw)
    want = [brute_force(row[:n].tolist(), min_n, max_n, k, rightmost) for row, n in zip(history, lengths, strict=True)]
    assert a.tolist() == want and b.tolist() == want


def test_gather_drafts():
    drafts = torch.tensor([[5, 6, 7], [8, -1, -1], [1, 1, 1], [9, 9, -1]])
    counts, starts = torch.tensor([3, 2, 0, 2], dtype=torch.int32), torch.tensor([0, 4, 7, 8], dtype=torch.int32)
    inputs = (torch.tensor([50, 51, 52, 53]), drafts, counts, starts, torch.tensor([10, 20, 30, 40]), 11)
    a, b = gather_drafts(*inputs, backend="torch"), gather_drafts(*inputs, backend="triton")
    for name in ("input_ids", "positions", "request", "judged"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert b.input_ids.tolist() == [50, 5, 6, 7, 51, 8, 0, 52, 53, 9, 9]
    assert b.judged.tolist() == [5, 6, 7, -1, 8, -1, -1, -1, 9, 9, -1]
    assert b.positions.tolist()[:4] == [9, 10, 11, 12]
