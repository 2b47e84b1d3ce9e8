"""Noise of verification and drafting, keyed by (request seed, absolute position, round slot, role), nothing else."""

from __future__ import annotations

from specdec_kernels.philox import words
from specdec_kernels.philox.roles import Role

__all__ = ["NoiseLedger", "NoiseReuse", "Role", "RoundNoise"]


class NoiseReuse(AssertionError):
    """A (seed, position, slot, role) was consumed twice, so two decisions would be dependent."""


class NoiseLedger:
    """Debugging aid that records every key consumed and refuses a second use."""

    def __init__(self) -> None:
        self.used: set[tuple[int, int, int, int]] = set()

    def record(self, seed: int, position: int, slot: int, role: int) -> None:
        key = (seed, position, slot, int(role))
        if key in self.used:
            raise NoiseReuse(
                f"noise used twice: seed {seed}, position {position}, slot {slot}, role {Role(role).name.lower()}"
            )
        self.used.add(key)


class RoundNoise:
    """The noise of one request's round: position ``start`` is the first one this round may emit."""

    def __init__(self, seed: int, start: int, ledger: NoiseLedger | None = None) -> None:
        self.seed, self.start, self.ledger = seed, start, ledger

    def key(self, index: int, role: Role) -> tuple[int, int, int, int]:
        """Philox key of row ``index`` (0-based); recorded in the ledger when there is one."""
        # a round's start is unique, so (position, slot) is too: block verification consults slots it then re-emits
        slot = 0 if role is Role.TARGET else index + 1
        if self.ledger is not None:
            self.ledger.record(self.seed, self.start + index, slot, role)
        return self.seed, self.start + index, slot, int(role)

    def uniform(self, index: int, role: Role) -> float:
        """A double in (0, 1) for row ``index``."""
        return words.uniform(*self.key(index, role))
