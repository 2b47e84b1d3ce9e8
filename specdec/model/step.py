"""What passes between the engine and whoever drafts: what a forward settled, and the drafts for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from specdec.verify.columns import Column, Columns
from specdec.verify.draft_laws import TopKDraftLogits

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig


@dataclass(frozen=True)
class Needs:
    """What a speculator reads of the target besides tokens; nothing else is captured for it."""

    last: bool = False  # states after the final norm
    boundaries: tuple[int, ...] = ()  # residual streams: i = what enters layer i, L = what leaves the last one
    target_kv_layers: tuple[int, ...] = ()  # layers whose keys and values it reads, where they lie

    def __or__(self, other: Needs) -> Needs:
        """What both need."""
        return Needs(
            self.last or other.last,
            tuple(sorted({*self.boundaries, *other.boundaries})),
            tuple(sorted({*self.target_kv_layers, *other.target_kv_layers})),
        )

    @classmethod
    def of(cls, config: SpeculativeConfig) -> Needs:
        """What a configuration's capabilities and wiring ask for."""
        can, wiring = config.capabilities, config.wiring
        boundaries = wiring.get("capture_before_layer") if can.get("uses_aux_hidden_states") else None
        layers = wiring.get("target_kv_layers") if can.get("reads_target_kv") else None
        return cls(bool(can.get("uses_target_hidden_states")), tuple(boundaries or ()), tuple(layers or ()))


@dataclass(frozen=True)
class States:
    """Target states of the N rows of a step; valid until the next forward."""

    last: torch.Tensor | None = None  # [N, H] after the final norm
    aux: torch.Tensor | None = None  # [N, A * H] at ``boundaries``, in their order
    boundaries: tuple[int, ...] = ()

    def select(self, boundaries: Sequence[int]) -> torch.Tensor:
        """States [N, len(boundaries) * H] at these boundaries, concatenated in this order."""
        assert self.aux is not None, "no states were captured at boundaries; the speculator's needs must name them"
        if tuple(boundaries) == self.boundaries:
            return self.aux
        parts = self.aux.view(len(self.aux), len(self.boundaries), -1)
        return parts[:, [self.boundaries.index(b) for b in boundaries]].flatten(1)

    def of(self, needs: Needs) -> torch.Tensor:
        """The states [N, S] that a draft network reads: at its boundaries, else after the final norm."""
        if needs.boundaries:
            return self.select(needs.boundaries)
        assert self.last is not None, "no states were captured after the final norm; the speculator's needs must say so"
        return self.last

    def rows(self, index: Sequence[int] | torch.Tensor) -> States:
        """The same of some rows."""
        last, aux = (None if t is None else t[index] for t in (self.last, self.aux))
        return States(last, aux, self.boundaries)


@dataclass(frozen=True)
class Step(Columns):
    """What one forward of the target settled for R requests; rows of all requests are flattened to N.

    An attribute is always a tensor. The engine makes steps of lists, and tensors of them when they are asked for;
    speculators that work on the host ask ``host("slots")`` for the list instead.
    """

    slots: torch.Tensor = Column(torch.int64)  # [R]: row of each request in the persistent request states
    num_drafts: torch.Tensor = Column(torch.int64)  # [R]: drafts wanted per request
    token_ids: torch.Tensor = Column(torch.int64)  # [N]: tokens the target consumed in this step
    positions: torch.Tensor = Column(torch.int64)  # [N]: absolute positions of those tokens
    row_offsets: torch.Tensor = Column(torch.int64)  # [R + 1]: request r owns rows row_offsets[r]:row_offsets[r + 1]
    num_rejected: torch.Tensor = Column(torch.int64)  # [R]: trailing rows of each request that were rejected
    # [R]: bonus or correction token, the last one kept where a request ended; -1 while a prompt is unfinished
    last_sampled: torch.Tensor = Column(torch.int64)
    # [R]: the token behind the last row that holds: last_sampled, or the next token of an unfinished prompt; -1 = none
    next_token: torch.Tensor = Column(torch.int64)
    finished: torch.Tensor = Column(torch.bool)  # [R]: the request ended with this step
    temperature: torch.Tensor = Column(torch.float32)  # [R], 0 = greedy
    seeds: torch.Tensor = Column(torch.int64)  # [R]
    states: States | None = None  # of the N rows, what the speculator's needs name
    batch_size: int = 0  # requests of the forward that go on, whether they want drafts or not
    num_free: Sequence[int] | None = None  # [R]: drafts wanted of members of a chain that cost nothing; None = the same
    device: torch.device | None = None  # of the tensors made from lists; None = the CPU

    def only(self, keep: Sequence[int], num_drafts: Sequence[int], num_free: Sequence[int] | None = None) -> Step:
        """The requests ``keep`` (indices), with these numbers of drafts wanted."""
        names = [name for name in vars(type(self)) if isinstance(vars(type(self))[name], Column)]
        if len(keep) == len(self.host("slots")):
            held = {name: self.host(name) for name in names}
            return Step.of_lists(
                {**held, "num_drafts": list(num_drafts)},
                states=self.states,
                batch_size=self.batch_size,
                num_free=num_free,
                device=self.device,
            )
        offsets = self.host("row_offsets")
        rows = [i for r in keep for i in range(offsets[r], offsets[r + 1])]
        ends = accumulate((offsets[r + 1] - offsets[r] for r in keep), initial=0)
        lists: dict[str, Any] = {name: [self.host(name)[r] for r in keep] for name in names if name not in _PER_ROW}
        lists |= {name: [self.host(name)[i] for i in rows] for name in ("token_ids", "positions")}
        lists |= {"row_offsets": list(ends), "num_drafts": list(num_drafts)}
        states = None if self.states is None else self.states.rows(rows)
        held = {"states": states, "batch_size": self.batch_size, "num_free": num_free, "device": self.device}
        return Step.of_lists(lists, **held)


_PER_ROW = ("token_ids", "positions", "row_offsets", "num_drafts")


@dataclass(frozen=True)
class Drafts(Columns):
    """Draft tokens of R requests; ``Drafts.of_lists({"token_ids": rows})`` takes rows of any length."""

    # [R, K] int64, -1 = no draft here nor after
    token_ids: torch.Tensor = Column(torch.int64, fill=-1)
    # [R, K, V] the values drafts were drawn from, before temperature, or those of some candidates; None = one-hot
    logits: torch.Tensor | TopKDraftLogits | None = None
    # [R, K] probability that each draft is accepted, given those before; nan = no opinion
    confidences: torch.Tensor | None = Column(torch.float32, fill=0.0, optional=True)
    logits_stay: bool = False  # a slot's logits are not written again before these drafts were verified
    free: Sequence[bool] | None = None  # [R]: from a chain's member that costs nothing
    width: int | None = None  # K of tensors made from rows; None = the longest row
    device: torch.device | None = None

    def rows(self) -> list[list[int]]:
        """The drafts of each request on the host, without what stands behind the first -1."""
        return [row[: row.index(-1)] if -1 in row else row for row in self.host("token_ids")]
