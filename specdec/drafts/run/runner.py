"""Draft networks of one engine: their caches, whose rows move with the target's, and what drafts were drawn from."""

from __future__ import annotations

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.run.sampling import DraftRound, DraftSampling
from specdec.model.handle import TargetHandle
from specdec.model.kv_cache import SlotCache, SlotMap
from specdec.model.step import Step
from specdec.verify.draft_store import DraftLogitsStore

_DEFAULT_MAX_NUM_SEQS = 8


class DraftRunner:
    """Owned by the engine, so that rows of target and draft caches are allocated, released and moved together.

    ``slots``: the engine's; None = its own, for a speculator that runs without an engine.
    """

    def __init__(self, slots: SlotMap | None, max_model_len: int, device: torch.device, max_rows: int = 0) -> None:
        self.owns_slots = slots is None
        self.slots = slots or SlotMap(max_rows or _DEFAULT_MAX_NUM_SEQS)
        self.max_model_len, self.device = max_model_len, device
        self._stores: dict[DraftSampling, DraftLogitsStore] = {}

    @classmethod
    def of(cls, target: TargetHandle, config: SpeculativeConfig) -> DraftRunner:
        """The engine's runner, or one of its own where a speculator is used without an engine."""
        if target.drafts is not None:
            held: DraftRunner = target.drafts
            return held
        return cls(None, target.max_model_len, target.device, config.get("engine.max_num_seqs") or 0)

    def cache(self, num_layers: int, max_len: int) -> SlotCache:
        """A cache whose rows are those of the target's."""
        return SlotCache(num_layers, self.slots.max_rows, max_len, self.slots)

    def start(self, slot: int) -> None:
        """A request took the slot; an engine has given it a row already."""
        if self.owns_slots:
            self.slots.acquire(slot)

    @torch.inference_mode()
    def finish(self, slot: int) -> None:
        """The slot's request ended; an engine takes its row back itself."""
        if self.owns_slots and slot in self.slots.row_of:
            self.slots.release(slot)

    def round(self, sampling: DraftSampling, step: Step, starts: list[int]) -> DraftRound:
        """A round of drafts, and the store that its laws go to."""
        if sampling not in self._stores:  # memory is taken at the first write
            self._stores[sampling] = DraftLogitsStore(self.slots.max_rows, sampling.width)
        return DraftRound(sampling, step, starts, self._stores[sampling])

    @property
    def num_bytes(self) -> int:
        """Bytes that draft caches and laws hold now."""
        caches = sum(cache.num_bytes for cache in self.slots.caches[0 if self.owns_slots else 1 :])
        return caches + sum(store.held_bytes for store in self._stores.values())
