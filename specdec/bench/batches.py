"""Measure throughput: batches of requests that start together, all modes in turn, several times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from specdec.bench.machine import CpuWatch
from specdec.bench.samples import BenchPrompt, Mode, ModeFailed
from specdec.bench.session import Active, Plan


@dataclass
class Throughput:
    """Tokens a second over all requests of a batch, one value per repeat."""

    mode: str
    batch: int
    temperature: float
    speeds: list[float]
    disturbed: int = 0  # repeats taken while others used the CPU

    @property
    def tokens_per_second(self) -> float:
        return median(self.speeds)


class BatchMode(Mode, Protocol):
    """A mode that runs several prompts at once."""

    def generate_together(
        self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, max_tokens: int
    ) -> tuple[int, float]:
        """(tokens, seconds) of all prompts in one batch."""
        ...


def measure_batches(
    modes: Sequence[BatchMode],
    prompts: Sequence[BenchPrompt],
    batches: Sequence[int],
    plan: Plan,
    on_result: Callable[[str], None] | None = None,
    on_failure: Callable[[ModeFailed], None] | None = None,
    results: list[Throughput] | None = None,
) -> list[Throughput]:
    """Throughput of each mode (with ``generate_together``) at each size; the prompts are repeated to fill a batch.

    What is measured is put into ``results`` at once, so that an error loses nothing.
    """
    results = [] if results is None else results
    active = Active(modes, plan, on_failure)
    found: dict[tuple[float, int, str], Throughput] = {}
    for repeat in range(plan.repeats):
        for temperature in plan.temperatures:
            for number, batch in enumerate(batches):
                chosen = [prompts[i % len(prompts)].token_ids for i in range(batch)]
                for mode in active.turn(repeat, number):
                    with active.may_leave(mode):
                        watch = CpuWatch(getattr(mode, "cpu_seconds", None))
                        done = mode.generate_together(chosen, temperature, plan.seed + repeat, plan.max_tokens)
                        key = (temperature, batch, mode.name)
                        if key not in found:
                            found[key] = Throughput(mode.name, batch, temperature, [])
                            results.append(found[key])
                        found[key].speeds.append(done[0] / done[1])
                        found[key].disturbed += watch.disturbed()
                        if on_result is not None:
                            on_result(f"{mode.name}, batch {batch}: {done[0] / done[1]:.1f} tokens/s")
    return results
