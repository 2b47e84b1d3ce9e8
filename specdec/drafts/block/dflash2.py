"""DFlash2: short dynamic convolutions around attention and MLP, and a selector over each row's best candidates.

Source: inco.ai/blog/dflash2 and the vLLM implementation it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from specdec.drafts.block.candidates import CandidateWalk
from specdec.drafts.block.network import BlockDraft, require
from specdec.drafts.block.walk import Walk
from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Weights


class DynamicConvolution(nn.Module):
    """Causal convolutions before and after a sub-layer; the sub-layer's input shifts their taps, by groups of channels."""

    def __init__(self, size: int, taps: int, group: int) -> None:
        super().__init__()
        self.base_kernel = nn.Parameter(torch.empty(2, taps, size))
        self.kernel_projection = nn.Linear(size, 2 * taps * (size // group), bias=False)

    def forward(self, x: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """convolve(1, sublayer(convolve(0, x))) of block rows [R, B, H]; no tap reaches into another block."""
        taps, size = self.base_kernel.shape[1:]
        shifts = self.kernel_projection(x).unflatten(-1, (2, taps, -1))
        shifts = shifts.repeat_interleave(size // shifts.shape[-1], -1)  # [R, B, 2, taps, H]
        inner = sublayer(self._convolve(x, shifts[..., 0, :, :], self.base_kernel[0]))
        return self._convolve(inner, shifts[..., 1, :, :], self.base_kernel[1])

    @staticmethod
    def _convolve(x: torch.Tensor, shifts: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x, dtype=torch.float32)
        for tap in range(min(len(base), x.shape[1])):
            kernel = (base[tap] + shifts[:, tap:, tap]).float()
            out[:, tap:] += kernel * x[:, : x.shape[1] - tap].float()
        return out.to(x.dtype)


class CandidateSelector(nn.Module):
    """Scores of a token after another: sum over the rank of predecessor * projected row * successor."""

    def __init__(self, vocab_size: int, size: int, rank: int) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.empty(vocab_size, rank))
        self.successor_codebook = nn.Parameter(torch.empty(vocab_size, rank))
        self.hidden_projection = nn.Linear(size, rank, bias=False)


class ConvolvedDraft(BlockDraft):
    """A block draft whose sub-layers are wrapped in convolutions where the checkpoint has them."""

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        size, taps, group = draft["hidden_size"], draft.get("conv_kernel_size"), draft.get("conv_group_size")
        if not taps:
            return
        if not group or size % group:
            raise DraftError(f"{weights.location}: conv_group_size {group} does not divide the width {size}")
        for layer in self.layers:
            layer.attention_conv, layer.mlp_conv = (DynamicConvolution(size, taps, group) for _ in range(2))
            layer.attention_mixer, layer.mlp_mixer = layer.attention_conv, layer.mlp_conv

    def candidates(self, rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and ids [R, S, count] of the best tokens of rows [R, S, H], logits as the head gives them."""
        best = self.lm_head(rows).topk(count, -1)
        return best.values, best.indices


class DFlash2Draft(ConvolvedDraft):
    """Convolutions and the candidate selector; the beam variant has the same weights and the same walk."""

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        self.top = require(draft, "selector_top_k", weights)
        self.multiplier = float(draft.get("output_multiplier") or 1.0)
        rows, rank = weights.shape("candidate_selector.predecessor_codebook")
        self.candidate_selector = CandidateSelector(rows, draft["hidden_size"], rank)

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        rows, selector = self.sampled(hidden, count), self.candidate_selector
        values, ids = self.candidates(rows, self.top)
        alone = values.float() * self.multiplier
        alone = torch.tanh(alone / self.softcap) * self.softcap if self.softcap else alone
        gates = selector.hidden_projection(rows)  # [R, S, rank]
        after = selector.successor_codebook[ids]  # [R, S, K, rank]

        def pair(step: int, tokens: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
            before = selector.predecessor_codebook[tokens] * gates[:, step]
            return (after[:, step] @ before[:, :, None])[..., 0]

        return CandidateWalk(ids, pair, alone)
