"""Several MTP modules of the target draft one token each."""

from __future__ import annotations

from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.lane import Lane
from specdec.drafts.run.module_lane import ModuleLane
from specdec.drafts.run.runner import DraftRunner
from specdec.speculators.network import NetworkSpeculator


class MultiModuleMTPSpeculator(NetworkSpeculator):
    """As the single module, with a window for every step instead of a chain. Source: arXiv 2412.19437."""

    def make_lane(self, runner: DraftRunner, network: DraftNetwork) -> Lane:
        return ModuleLane(runner, network.eval().requires_grad_(False), self.needs, self.config)
