"""LiLiCorr: a small transformer over the cells (row, candidate) of a block scores the transitions between them.

Source: arXiv 2608.20530 and the vLLM implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from specdec.drafts.block.candidates import CandidateWalk
from specdec.drafts.block.dflash2 import ConvolvedDraft
from specdec.drafts.block.network import require
from specdec.drafts.block.walk import Walk
from specdec.drafts.layers import RMSNorm
from specdec.drafts.weights import Weights

_FEATURES = 5  # of a candidate: log-probability, probability, distance from the best, rank, being the best


class _Up(nn.Module):
    """down(silu(up(x))), with biases."""

    def __init__(self, size: int, inner: int, out: int) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(size, inner), nn.Linear(inner, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.up_proj(x)))
        return out


class CellLayer(nn.Module):
    """Pre-norm attention with an additive bias per head, then an ungated MLP."""

    def __init__(self, size: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.attn_norm, self.mlp_norm = RMSNorm(size, eps), RMSNorm(size, eps)
        self.attn = nn.MultiheadAttention(size, heads, batch_first=True)
        self.mlp = _Up(size, inner, size)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Cells [R, N, H] after the layer; ``bias`` [heads, N, N] is added to the scores."""
        normed = self.attn_norm(x)
        q, k, v = F.linear(normed, self.attn.in_proj_weight, self.attn.in_proj_bias).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(q.dtype))
        x = x + self.attn.out_proj(mixed.transpose(1, 2).flatten(-2))
        out: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class CellTransformer(nn.Module):
    """The modules of the head, under the names that checkpoints give them."""

    def __init__(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().__init__()
        width, eps = draft["hidden_size"], draft["rms_norm_eps"]
        size = draft.get("lilicorr_hidden_size") or width
        self.block, self.top, self.heads = draft["block_size"], draft["selector_top_k"], draft["lilicorr_num_heads"]
        self.eps, self.scale = draft["lilicorr_vector_eps"], draft["lilicorr_logit_scale"]
        inner, factors = int(size * draft["lilicorr_mlp_ratio"]), draft["lilicorr_factor_dim"]
        own = "lilicorr.token_proj.weight" in weights
        self.token_proj = nn.Linear(width, size) if own or size != width else nn.Identity()
        for name in ("pass_hidden_proj", "context_proj"):
            linear = nn.Linear(width, size, bias=f"lilicorr.{name}.bias" in weights)
            setattr(self, name, linear if f"lilicorr.{name}.weight" in weights or size != width else nn.Identity())
        self.feature_norm, self.feature_mlp = nn.LayerNorm(_FEATURES), _Up(_FEATURES, size, size)
        self.slot_embedding = nn.Parameter(torch.empty(1, 1, self.block - 1, 1, size))
        self.rank_embedding = nn.Parameter(torch.empty(1, 1, 1, self.top, size))
        self.relative_slot_bias = nn.Parameter(torch.empty(self.heads, 2 * self.block - 1))
        self.same_slot_bias = nn.Parameter(torch.empty(self.heads))
        layers = range(draft["lilicorr_num_layers"])
        self.layers = nn.ModuleList(CellLayer(size, self.heads, inner, eps) for _ in layers)
        self.output_norm, self.anchor_norm = RMSNorm(size, eps), RMSNorm(size, eps)
        self.factor_input_proj = nn.Linear(3 * size, size)
        self.out_head, self.in_head, self.anchor_out_head = (nn.Linear(size, factors) for _ in range(3))

    def forward(
        self, tokens: torch.Tensor, rows: torch.Tensor, logp: torch.Tensor, context: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Unit vectors: leaving cells, entering cells [R, S, K, f], and leaving the anchor [R, f].

        ``tokens`` [R, S, K, H_d] embeddings of the candidates, ``rows`` [R, S, H_d], ``logp`` [R, S, K], ``context`` [R, H_d].
        """
        slots, top = logp.shape[1:]
        ranks = torch.arange(top, device=logp.device, dtype=logp.dtype).expand_as(logp)
        features = (
            logp,
            logp.exp(),
            logp - logp.amax(-1, keepdim=True),
            ranks / max(top - 1, 1),
            (ranks == 0).to(logp),
        )
        x = self.token_proj(tokens) + self.pass_hidden_proj(rows)[:, :, None]
        x = x + self.feature_mlp(self.feature_norm(torch.stack(features, -1).to(tokens.dtype)))
        x = (x + self.slot_embedding[0, :, :slots] + self.rank_embedding[0]).flatten(1, 2)
        at = torch.arange(slots, device=logp.device).repeat_interleave(top)
        apart = at[:, None] - at
        bias = self.relative_slot_bias[:, apart + self.block - 1] + self.same_slot_bias[:, None, None] * (apart == 0)
        for layer in self.layers:
            x = layer(x, bias)
        x, a = self.output_norm(x), self.anchor_norm(self.context_proj(context))
        wide = a[:, None].expand_as(x)
        f = F.silu(self.factor_input_proj(torch.cat((x, wide, x * wide), -1)))
        leaving, entering = (self._unit(head(f)).unflatten(1, (slots, top)) for head in (self.out_head, self.in_head))
        return leaving, entering, self._unit(self.anchor_out_head(a))

    def _unit(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x.float(), dim=-1, eps=self.eps)


class LiLiCorrDraft(ConvolvedDraft):
    """DFlash, with convolutions where stored, and transitions scored by unit vectors of cells; logits are features only."""

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        require(draft, "block_size", weights)
        self.lilicorr = CellTransformer(draft, weights)

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        rows, head = hidden[:, 1:], self.lilicorr  # all rows of the block: cells see each other
        logp = torch.log_softmax(self.lm_head(rows).float(), -1)
        best = logp.topk(head.top, -1)
        leaving, entering, anchor = head(self.embed_tokens(best.indices), rows, best.values, last)

        def pair(step: int, tokens: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
            before = anchor if step == 0 else leaving[torch.arange(len(choices)), step - 1, choices]
            return head.scale * (entering[:, step] @ before[:, :, None])[..., 0]

        return CandidateWalk(best.indices, pair)
