"""P-EAGLE: all drafts of a round in one pass."""

from __future__ import annotations

from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.parallel_lane import ParallelLane
from specdec.drafts.run.runner import DraftRunner
from specdec.speculators.network import NetworkSpeculator


class PEagleSpeculator(NetworkSpeculator):
    """An EAGLE-3 head whose drafts stand side by side behind the newest pair. Source: arXiv 2602.01469."""

    def make_lane(self, runner: DraftRunner, network: DraftNetwork) -> ParallelLane:
        return ParallelLane(runner, network.eval().requires_grad_(False), self.needs, self.config)
