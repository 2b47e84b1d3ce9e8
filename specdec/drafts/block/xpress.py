"""XPress: all rows of a block are decided again and again, each from the token before it in the pass before.

Source: arXiv 2608.02438 and the vLLM implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from specdec.drafts.block.network import BlockDraft, require
from specdec.drafts.block.walk import Walk
from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Weights


class _Mixer(nn.Module):
    """A causal map over the rows of a block, one per channel; stored raw, it acts as its lower triangle plus one."""

    def __init__(self, rank: int, rows: int) -> None:
        super().__init__()
        self.L = nn.Parameter(torch.empty(rank, rows, rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [R, B, rank] plus what the rows up to each add to it."""
        return x + torch.einsum("cbj,rjc->rbc", self.L.tril(), x)


class _GatedMLP(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(size, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Refiner(nn.Module):
    """Corrections of logits from the tokens before each row; strictly causal in them."""

    def __init__(self, vocab_size: int, size: int, rank: int, rows: int, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Embedding(vocab_size, rank)
        self.w2 = nn.Linear(rank, vocab_size, bias=False)
        self.down_h, self.down_g = (nn.Linear(size, rank, bias=False) for _ in range(2))
        self.in_proj = nn.Linear(3 * rank, rank, bias=False)
        self.mix, self.mlp = _Mixer(rank, rows), _GatedMLP(rank, inner)

    def fixed(self, hidden: torch.Tensor) -> torch.Tensor:
        """What no pass changes [R, B, 2 rank]: each row of hidden [R, B, H], and the mean of all."""
        mean = self.down_g(hidden.mean(1, keepdim=True))
        return torch.cat((self.down_h(hidden), mean.expand(-1, hidden.shape[1], -1)), -1)

    def forward(self, fixed: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """What ``w2`` reads [R, B, rank], given the token before each row [R, B]."""
        x = self.mix(self.in_proj(torch.cat((fixed, self.w1(before)), -1)))
        out: torch.Tensor = x + self.mlp(x)
        return out


class XPressDraft(BlockDraft):
    """DFlash and a refiner iterated to (or near) its fixed point, which is the greedy decoding row by row.

    After j passes rows 1 to j are settled, so as many passes as drafts always suffice. ``xpress_topc`` narrows each row
    to that many candidates of the base logits, once; 0 keeps the whole vocabulary.
    """

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        vocab, rank = weights.shape("xpress_head.w1.weight")
        rows = weights.shape("xpress_head.mix.L")[-1]
        if rows != require(draft, "block_size", weights):
            raise DraftError(
                f"{weights.location}: xpress_head.mix.L mixes {rows} rows, and a block has {draft['block_size']}"
            )
        inner = weights.shape("xpress_head.mlp.gate_proj.weight")[0]
        self.xpress_head = Refiner(vocab, draft["hidden_size"], rank, rows, inner)
        self.passes, self.top = draft["xpress_num_passes"], draft.get("xpress_topc") or 0

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        return Settled(*self.refine(hidden, anchors))

    def refine(self, hidden: torch.Tensor, anchors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scores [R, B - 1, M] of the last pass, and the ids of the columns where they are candidates [R, B - 1, M]."""
        head, base = self.xpress_head, self.head(hidden)[:, 1:]
        ids = None
        if 0 < self.top < base.shape[-1]:
            base, ids = base.topk(self.top, -1)
        fixed, scores = head.fixed(hidden), base
        for _ in range(self.passes):
            tokens = chosen(scores, ids)
            # the anchor stands in for the token before it, too
            before = torch.cat((anchors[:, None], anchors[:, None], tokens[:, :-1]), 1)
            y = head(fixed, before)[:, 1:]
            shift = head.w2(y) if ids is None else (head.w2.weight[ids] @ y[..., None])[..., 0]
            scores = base + shift
        return scores, ids


def chosen(scores: torch.Tensor, ids: torch.Tensor | None) -> torch.Tensor:
    """The best token [R, S] of each row."""
    columns = scores.argmax(-1)
    return columns if ids is None else ids.gather(-1, columns[..., None])[..., 0]


class Settled:
    """Rows that were all decided before the first is asked for."""

    def __init__(self, scores: torch.Tensor, ids: torch.Tensor | None) -> None:
        self.scores, self.ids = scores, ids

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.scores[:, step], None if self.ids is None else self.ids[:, step]

    def confidence(self, step: int, tokens: torch.Tensor) -> torch.Tensor | None:
        return None
