"""DSpark: a DFlash block, a Markov head between its tokens, and a confidence per token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from specdec.drafts.block.markov import ConfidenceHead, MarkovHead, MarkovWalk, markov_head
from specdec.drafts.block.network import BlockDraft
from specdec.drafts.block.walk import Walk
from specdec.drafts.errors import DraftError
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.weights import Weights

_TEMPERATURES = "confidence_head.sts_temperatures"


class DSparkDraft(BlockDraft):
    """Block draft with a sequential head. Source: arXiv 2607.05147; formats of DeepSpec, SpecForge, the speculators library."""

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        super().build(draft, weights)
        rank = draft.get("markov_rank") or 0
        first, second = (f"markov_head.markov_{name}.weight" for name in ("w1", "w2"))
        sizes = (weights.shape(first)[0], weights.shape(second)[0]) if rank else (0, 0)
        self.markov_head = markov_head(draft, *sizes)
        self.reads_token = bool(draft.get("confidence_head_with_markov"))
        self.best = draft.get("dspark_draft_topk")
        self.confidence_head = None
        if draft.get("enable_confidence_head"):
            if self.reads_token and not rank:
                raise DraftError(
                    f"{weights.location}: confidence_head_with_markov needs a Markov head, and markov_rank is 0"
                )
            calibrated = weights.shape(_TEMPERATURES)[0] if _TEMPERATURES in weights else 0
            self.confidence_head = ConfidenceHead(draft["hidden_size"] + rank * self.reads_token, calibrated)

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        rows = self.sampled(hidden, count)
        return MarkovWalk(
            self.head(rows),
            rows,
            self.markov_head,
            self.to_target,
            self.confidence_head,
            self.reads_token,
            self.best,
            self.logit_scale,
        )

    def parts(self) -> DraftParts:
        plain = self.best is None and self.logit_scale == 1.0 and not self.softcap
        head, judge = self.markov_head, self.confidence_head
        if not plain or not (head is None or type(head) is MarkovHead):
            return super().parts()
        return replace(
            super().parts(),
            walks=True,
            markov_embed=None if head is None else head.markov_w1,
            markov=None if head is None else head.markov_w2,
            confidence=None if judge is None else judge.proj,
            confidence_reads_token=self.reads_token,
            temperatures=getattr(judge, "sts_temperatures", None),
        )
