"""Several MTP modules of a target: each drafts one token, over a window of the same positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.drafts.mtp import MTPDraft

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle


class MultiModuleMTPDraft(MTPDraft):
    """Distinct modules in turn; step j pairs what step j - 1 fed back at a position with the token j further right.

    Every step has keys and values of its own, also where more tokens are drafted than there are modules and a module
    serves several steps: its inputs differ from step to step. Source: arXiv 2412.19437, section 2.2.
    """

    def __init__(self, config: SpeculativeConfig, target: TargetHandle) -> None:
        super().__init__(config, target)
        self.num_layers = len(self.step_to_layer)

    def cache_layer(self, step: int) -> int:
        return step
