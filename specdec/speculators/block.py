"""A speculator around a block draft: dflash and every method that builds on it, told apart by their records' networks."""

from __future__ import annotations

from specdec.drafts.block.lane import BlockLane
from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.runner import DraftRunner
from specdec.speculators.base import Drafts, Step
from specdec.speculators.network import NetworkSpeculator


class BlockSpeculator(NetworkSpeculator):
    """Target states of accepted positions become context; a round is one pass over a block of mask tokens."""

    lane: BlockLane

    def make_lane(self, runner: DraftRunner, network: DraftNetwork) -> BlockLane:
        return BlockLane(runner, network.eval().requires_grad_(False), self.needs, self.config)  # type: ignore[arg-type]

    def propose(self, step: Step) -> Drafts:
        return self.lane.block(step)
