"""The interface of a speculator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

from specdec.model.handle import TargetHandle
from specdec.model.step import Drafts, Needs, States, Step

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig

__all__ = ["BaseSpeculator", "Drafts", "Needs", "States", "Step", "TargetHandle"]


class BaseSpeculator(ABC):
    """Drafts tokens for the engine; built as ``Class(config, device)``, plus ``req_states`` if the constructor names it.

    After every forward ``observe`` is told what it settled; then ``propose`` is asked for the requests that want drafts.
    """

    def __init__(self, config: SpeculativeConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.num_speculative_tokens: int = config.num_speculative_tokens

    @property
    def needs(self) -> Needs:
        """What the engine must capture of the target for ``observe``."""
        return Needs.of(self.config)

    def load(self, target: TargetHandle) -> None:
        """Load draft weights and share what the wiring shares with the target; called once, before any request."""

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        """A request was admitted to ``slot`` with this prompt [P]."""

    def observe(self, step: Step) -> None:
        """A forward is settled: chunks of prompts and requests that ended are part of it. Keep what drafting needs.

        Runs no network: whether a request wants drafts is not known yet.
        """

    @abstractmethod
    def propose(self, step: Step) -> Drafts:
        """Draft up to ``num_drafts`` tokens for each request of a step that ``observe`` was told of.

        Only requests that want drafts are part of it; without any this is not called.
        """

    def finish(self, slot: int) -> None:
        """The request in ``slot`` ended or was aborted; its draft state may be dropped."""

    def close(self) -> None:
        """Nothing follows; called once, also after an error."""
