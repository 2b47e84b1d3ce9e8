"""The interface between the engine and a speculator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from specdec.model.handle import TargetHandle
from specdec.verify.columns import Column, Columns

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig


@dataclass(frozen=True)
class ProposeBatch(Columns):
    """What the engine knows about R requests after a verify step; rows of all requests are flattened to N.

    An attribute is always a tensor. The engine makes batches of lists, and tensors of them when they are asked for;
    speculators that work on the host ask ``host("slots")`` for the list instead.
    """

    slots: torch.Tensor = Column(torch.int64)  # [R]: row of each request in the persistent request states
    # [R]: drafts wanted per request, 0 = keep the draft state in sync but draft nothing
    num_drafts: torch.Tensor = Column(torch.int64)
    token_ids: torch.Tensor = Column(torch.int64)  # [N]: tokens the target consumed in this step
    positions: torch.Tensor = Column(torch.int64)  # [N]: absolute positions of those tokens
    row_offsets: torch.Tensor = Column(torch.int64)  # [R + 1]: request r owns rows row_offsets[r]:row_offsets[r + 1]
    num_rejected: torch.Tensor = Column(torch.int64)  # [R]: trailing rows of each request that were rejected
    # [R]: bonus or correction token; -1 while a prompt is still being prefilled
    last_sampled: torch.Tensor = Column(torch.int64)
    temperature: torch.Tensor = Column(torch.float32)  # [R], 0 = greedy
    seeds: torch.Tensor = Column(torch.int64)  # [R]
    hidden_states: torch.Tensor | None = None  # [N, H] target states after the final norm
    aux_hidden_states: torch.Tensor | None = None  # [N, num_aux * H] states at the boundary ids, concatenated in order
    device: torch.device | None = None  # of the tensors made from lists; None = the CPU

    def wanting(self, num_drafts: Sequence[int]) -> ProposeBatch:
        """The same step with other numbers of drafts wanted [R]; ``dataclasses.replace`` would make every tensor."""
        held = {name: value for name, value in vars(self).items() if name not in ("lists", "num_drafts")}
        return ProposeBatch.of_lists({**self.lists, "num_drafts": num_drafts}, **held)


@dataclass(frozen=True)
class Drafts(Columns):
    """Draft tokens of R requests; ``Drafts.of_lists({"token_ids": rows})`` takes rows of any length."""

    # [R, K] int64, -1 = no draft here nor after
    token_ids: torch.Tensor = Column(torch.int64, fill=-1)
    # [R, K, V] the values drafts were drawn from, before temperature; None = one-hot
    logits: torch.Tensor | None = None
    # [R, K] probability that each draft is accepted, given those before; nan = no opinion
    confidences: torch.Tensor | None = Column(torch.float32, fill=0.0, optional=True)
    width: int | None = None  # K of tensors made from rows; None = the longest row
    device: torch.device | None = None

    def rows(self) -> list[list[int]]:
        """The drafts of each request on the host, without what stands behind the first -1."""
        return [row[: row.index(-1)] if -1 in row else row for row in self.host("token_ids")]


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
