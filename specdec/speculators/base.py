"""The interface between the engine and a speculator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from specdec.config.speculative import SpeculativeConfig


@dataclass(frozen=True)
class ProposeBatch:
    """What the engine knows about R requests after a verify step; rows of all requests are flattened to N."""

    slots: torch.Tensor  # [R] int64: row of each request in the persistent request states
    num_drafts: torch.Tensor  # [R] int64: drafts wanted per request, 0 = keep the draft state in sync but draft nothing
    token_ids: torch.Tensor  # [N] int64: tokens the target consumed in this step
    positions: torch.Tensor  # [N] int64: absolute positions of those tokens
    row_offsets: torch.Tensor  # [R + 1] int64: request r owns rows row_offsets[r]:row_offsets[r + 1]
    num_rejected: torch.Tensor  # [R] int64: trailing rows of each request that were rejected
    last_sampled: torch.Tensor  # [R] int64: bonus or correction token; -1 while a prompt is still being prefilled
    temperature: torch.Tensor  # [R] float32, 0 = greedy
    seeds: torch.Tensor  # [R] int64
    hidden_states: torch.Tensor | None = None  # [N, H] target states after the final norm
    aux_hidden_states: torch.Tensor | None = None  # [N, num_aux * H] states at the boundary ids, concatenated in order


@dataclass(frozen=True)
class Drafts:
    """Draft tokens of R requests."""

    token_ids: torch.Tensor  # [R, K] int64, -1 = no draft here nor after
    logits: torch.Tensor | None = (
        None  # [R, K, V] the values drafts were drawn from, before temperature; None = one-hot
    )
    confidences: torch.Tensor | None = None  # [R, K] probability that each draft is accepted, given those before


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
    kv_cache: Any | None = (
        None  # specdec.engine.kv_cache.SlotCache: read(slot, layer) gives a request's keys and values
    )


class BaseSpeculator(ABC):
    """Drafts tokens for the engine; built as ``Class(config, device)``, plus ``req_states`` if the constructor names it."""

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.num_speculative_tokens: int = config.num_speculative_tokens

    def load(self, target: TargetHandle) -> None:
        """Load draft weights and share what the wiring shares with the target; called once, before any request."""

    @abstractmethod
    def propose(self, batch: ProposeBatch) -> Drafts:
        """Draft up to ``num_speculative_tokens`` tokens per request after a verify step."""

    def start_request(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        """A request was admitted to ``slot`` with this prompt [P]."""

    def finish_request(self, slot: int) -> None:
        """The request in ``slot`` ended or was aborted; its draft state may be dropped."""
