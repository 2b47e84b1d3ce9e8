"""A speculator around a draft network that reads the target's states: what eagle, eagle3 and mtp have in common."""

from __future__ import annotations

import torch

from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.lane import Lane
from specdec.drafts.run.runner import DraftRunner
from specdec.speculators.base import BaseSpeculator, Drafts, Needs, Step, TargetHandle
from specdec.speculators.init import load_network


class NetworkSpeculator(BaseSpeculator):
    """Runs the network that the record names: pairs wait until drafts are wanted, then a chain drafts them.

    Raises ``DraftError`` at ``load`` for a checkpoint that cannot be read or does not fit.
    """

    lane: Lane

    @property
    def needs(self) -> Needs:
        needs = Needs.of(self.config)
        return Needs(not needs.boundaries, needs.boundaries, needs.target_kv_layers)

    def load(self, target: TargetHandle) -> None:
        runner = DraftRunner.of(target, self.config)
        self.lane = self.make_lane(runner, load_network(self.config).load(self.config, target))
        self.lane.prepare()

    def make_lane(self, runner: DraftRunner, network: DraftNetwork) -> Lane:
        """What runs the network; a family whose rounds differ returns another one."""
        return Lane(runner, network.eval().requires_grad_(False), self.needs, self.config)

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        self.lane.start(slot)

    def observe(self, step: Step) -> None:
        self.lane.feed(step)

    def propose(self, step: Step) -> Drafts:
        return self.lane.chain(step)

    def finish(self, slot: int) -> None:
        self.lane.finish(slot)
