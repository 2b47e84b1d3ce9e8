"""Domino: a recurrent encoder of the drafted prefix corrects the logits of a DFlash block. Source: arXiv 2605.29707."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from specdec.drafts.block.network import BlockDraft
from specdec.drafts.block.walk import Rows, Walk
from specdec.drafts.weights import Weights


class DominoDraft(BlockDraft):
    """Each draft's logits gain ``embed_proj([row; GRU of the tokens before])``; the first few stay as they are."""

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        size = draft["hidden_size"]
        inner = weights.shape("prefix_gru.weight_hh_l0")[1]
        vocab, narrow = weights.shape("embed_proj.2.weight")
        self.prefix_gru = nn.GRU(size, inner, batch_first=True, bias=False)
        linears = nn.Linear(size + inner, narrow, bias=False), nn.Linear(narrow, vocab, bias=False)
        self.embed_proj = nn.Sequential(linears[0], nn.SiLU(), linears[1])
        self.untouched = draft.get("pure_draft_prefix_len") or 0

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        rows = self.sampled(hidden, count)
        return _Corrected(self, self.head(rows), rows)


class _Corrected(Rows):
    def __init__(self, network: DominoDraft, logits: torch.Tensor, rows: torch.Tensor) -> None:
        super().__init__(logits, network.to_target)
        self.network, self.rows = network, rows
        self.state: torch.Tensor | None = None  # [1, R, inner]

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        network = self.network
        _, self.state = network.prefix_gru(network.embed_tokens(tokens)[:, None], self.state)
        base, ids = super().row(step, tokens, choices)
        if step < network.untouched:
            return base, ids
        return base + network.embed_proj(torch.cat((self.rows[:, step], self.state[0]), -1)), ids
