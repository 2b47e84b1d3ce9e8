"""Measure modes side by side: every prompt runs in every mode before the next prompt starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec.bench.machine import CpuWatch
from specdec.bench.ours import EngineMode
from specdec.bench.samples import BenchPrompt, Mode, Sample

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Plan:
    """What is measured; ``tries`` is how often a disturbed sample is taken before the last one is kept."""

    temperatures: tuple[float, ...] = (0.0, 0.8)
    max_tokens: int = 128
    repeats: int = 1
    seed: int = 0
    tries: int = 3


def measure(
    modes: Sequence[Mode], prompts: Sequence[BenchPrompt], plan: Plan, on_sample: Callable[[Sample], None] | None = None
) -> list[Sample]:
    """All samples, in the order they were taken. The order of the modes rotates from prompt to prompt."""
    for mode in modes:
        for temperature in plan.temperatures:
            mode.generate(prompts[0].token_ids, temperature, plan.seed, WARM_UP_TOKENS)
    samples: list[Sample] = []
    turn = 0
    for repeat in range(plan.repeats):
        for temperature in plan.temperatures:
            for prompt in prompts:
                for mode in _rotated(modes, turn):
                    sample = _one(mode, prompt, temperature, plan, plan.seed + repeat)
                    sample.repeat = repeat
                    samples.append(sample)
                    if on_sample is not None:
                        on_sample(sample)
                turn += 1
    return samples


def count(modes: Sequence[Mode], prompts: Sequence[BenchPrompt], plan: Plan) -> int:
    """Samples that ``measure`` takes."""
    return len(modes) * len(prompts) * len(plan.temperatures) * plan.repeats


def _rotated(modes: Sequence[Mode], turn: int) -> list[Mode]:
    start = turn % len(modes)
    return [*modes[start:], *modes[:start]]


def _one(mode: Mode, prompt: BenchPrompt, temperature: float, plan: Plan, seed: int) -> Sample:
    watch = CpuWatch()
    for _ in range(plan.tries):
        watch.reset()
        sample = mode.generate(prompt.token_ids, temperature, seed, plan.max_tokens)
        sample.disturbed = watch.disturbed()
        if not sample.disturbed:
            break
    sample.mode, sample.prompt, sample.kind, sample.temperature = mode.name, prompt.id, prompt.kind, temperature
    return sample


@dataclass(frozen=True)
class Throughput:
    """Tokens a second of a batch of requests that start together."""

    mode: str
    batch: int
    temperature: float
    tokens_per_second: float
    disturbed: bool


def measure_batches(
    modes: Sequence[EngineMode],
    prompts: Sequence[BenchPrompt],
    batches: Sequence[int],
    plan: Plan,
    on_result: Callable[[Throughput], None] | None = None,
) -> list[Throughput]:
    """Throughput of each mode at each batch size; the prompts are repeated to fill a batch."""
    results = []
    for temperature in plan.temperatures:
        for batch in batches:
            chosen = [prompts[i % len(prompts)].token_ids for i in range(batch)]
            for mode in modes:
                watch = CpuWatch()
                tokens, seconds = mode.generate_together(chosen, temperature, plan.seed, plan.max_tokens)
                result = Throughput(mode.name, batch, temperature, tokens / seconds, watch.disturbed())
                results.append(result)
                if on_result is not None:
                    on_result(result)
    return results
