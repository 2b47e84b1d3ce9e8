"""What a speculator may share of a loaded target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class TargetHandle:
    """The parts of a loaded target that a speculator may share."""

    model: Any  # transformers PreTrainedModel
    embed_tokens: torch.nn.Module
    lm_head: torch.nn.Module
    vocab_size: int
    hidden_size: int
    dtype: torch.dtype
    device: torch.device
    max_model_len: int
    tokenizer: Any | None = None
    drafts: Any | None = None  # specdec.drafts.run.runner.DraftRunner of the engine
    kv_cache: Any | None = None  # specdec.model.kv_cache.SlotCache: read(slot, layer) gives a request's keys and values
