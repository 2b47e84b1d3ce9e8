"""Pairs of a token and a target state that wait until a draft is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from specdec.model.step import Needs, Step


@dataclass
class Pairs:
    """Pairs of one request, of positions start, start + 1, ...: the token at P + 1 with the target's state at P."""

    start: int = 0
    token_ids: list[int] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)  # [n_i, S] each

    @property
    def end(self) -> int:
        """The position behind the last pair."""
        return self.start + len(self.token_ids)

    def take(self, count: int | None = None) -> tuple[list[int], torch.Tensor]:
        """The first ``count`` pairs, which wait no longer: token ids [n] and states [n, S]; None = all."""
        count = len(self.token_ids) if count is None else count
        states = self.states[0] if len(self.states) == 1 else torch.cat(self.states)
        taken = self.token_ids[:count], states[:count]
        self.start, self.token_ids = self.start + count, self.token_ids[count:]
        self.states = [states[count:]] if self.token_ids else []
        return taken


class PairBook:
    """The pairs of all slots, fed by every step of the target."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.of: dict[int, Pairs] = {}

    def start(self, slot: int) -> None:
        """A request took the slot."""
        self.of[slot] = Pairs()

    def finish(self, slot: int) -> None:
        """The slot's request ended."""
        self.of.pop(slot, None)

    def feed(self, step: Step) -> None:
        """Keep the pairs that a step settled: rows that hold, each with the token behind it."""
        assert step.states is not None, "a step without states; the speculator's needs must name them"
        states = step.states.of(self.needs)
        offsets, rejected, following = step.host("row_offsets"), step.host("num_rejected"), step.host("next_token")
        token_ids, positions, finished = step.host("token_ids"), step.host("positions"), step.host("finished")
        for r, slot in enumerate(step.host("slots")):
            first, last = offsets[r], offsets[r + 1] - rejected[r]
            if finished[r] or last <= first or following[r] < 0:
                continue  # nothing will be drafted from what stands here
            pairs = self.of[slot]
            assert positions[first] == pairs.end, (
                f"slot {slot}: rows from {positions[first]} after pairs to {pairs.end}"
            )
            pairs.token_ids += [*token_ids[first + 1 : last], following[r]]
            pairs.states.append(states[first:last])
