"""Measure modes side by side: every prompt runs in every mode before the next prompt starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from specdec.bench.machine import CpuWatch
from specdec.bench.paired import settled
from specdec.bench.samples import BenchPrompt, Mode, ModeFailed, Sample

WARM_UP_TOKENS = 8
M = TypeVar("M", bound=Mode)


@dataclass(frozen=True)
class Plan:
    """What is measured; ``tries`` is how often a disturbed sample is taken before the last one is kept."""

    temperatures: tuple[float, ...] = (0.0, 0.8)
    max_tokens: int = 128
    repeats: int = 1
    seed: int = 0
    tries: int = 3
    peer_repeats: int | None = None  # peers run in the first repeats only
    until_decided: bool = False  # a prompt where every mode of ours is shown to be within the aim, or not, is left out

    def takes_part(self, mode: Mode, repeat: int) -> bool:
        return not mode.peer or self.peer_repeats is None or repeat < self.peer_repeats


def measure(
    modes: Sequence[Mode],
    prompts: Sequence[BenchPrompt],
    plan: Plan,
    on_sample: Callable[[Sample], None] | None = None,
    on_failure: Callable[[ModeFailed], None] | None = None,
) -> list[Sample]:
    """All samples, in the order they were taken; the first mode is plain decoding.

    A mode that fails leaves; without ``on_failure`` that is raised.
    """
    active = Active(modes, plan, on_failure)
    for mode in modes:
        for temperature in plan.temperatures:
            with active.may_leave(mode):
                mode.generate(prompts[0].token_ids, temperature, plan.seed, WARM_UP_TOKENS)
    samples: list[Sample] = []
    of_prompt: dict[tuple[float, str], list[Sample]] = defaultdict(list)
    for repeat in range(plan.repeats):
        for temperature in plan.temperatures:
            for number, prompt in enumerate(prompts):
                before = of_prompt[temperature, prompt.id]
                if plan.until_decided and settled(before, modes[0].name, [m.name for m in modes if not m.peer]):
                    continue
                for mode in active.turn(repeat, number):
                    with active.may_leave(mode):
                        sample = _one(mode, prompt, temperature, plan, repeat)
                        samples.append(sample)
                        before.append(sample)
                        if on_sample is not None:
                            on_sample(sample)
    return samples


class Active(Generic[M]):
    """The modes that have not failed, and their order."""

    def __init__(self, modes: Sequence[M], plan: Plan, on_failure: Callable[[ModeFailed], None] | None) -> None:
        self.modes, self.plan, self.on_failure = list(modes), plan, on_failure

    @contextmanager
    def may_leave(self, mode: M) -> Iterator[None]:
        """A failure inside takes the mode out."""
        try:
            yield
        except ModeFailed as error:
            if self.on_failure is None:
                raise
            self.modes = [other for other in self.modes if other is not mode]
            self.on_failure(error)

    def turn(self, repeat: int, number: int) -> list[M]:
        """The modes of one prompt (the ``number``-th) in this repeat."""
        return in_order([m for m in self.modes if self.plan.takes_part(m, repeat)], number + repeat)


def count(modes: Sequence[Mode], prompts: Sequence[BenchPrompt], plan: Plan) -> int:
    """Samples that ``measure`` takes at most."""
    runs = sum(plan.takes_part(mode, repeat) for mode in modes for repeat in range(plan.repeats))
    return runs * len(prompts) * len(plan.temperatures)


def in_order(modes: Sequence[M], turn: int) -> list[M]:
    """Our modes next to each other, so that their ratios see the same machine; who is first changes with ``turn``."""
    ours, peers = [m for m in modes if not m.peer], [m for m in modes if m.peer]
    blocks = [_rotated(ours, turn), _rotated(peers, turn)]
    first, second = blocks if turn % 2 == 0 else reversed(blocks)
    return [*first, *second]


def _rotated(modes: Sequence[M], turn: int) -> list[M]:
    start = turn % len(modes) if modes else 0
    return [*modes[start:], *modes[:start]]


def _one(mode: Mode, prompt: BenchPrompt, temperature: float, plan: Plan, repeat: int) -> Sample:
    watch = CpuWatch(getattr(mode, "cpu_seconds", None))
    for _ in range(plan.tries):
        watch.reset()
        sample = mode.generate(prompt.token_ids, temperature, plan.seed + repeat, plan.max_tokens)
        sample.disturbed = watch.disturbed()
        if not sample.disturbed:
            break
    sample.mode, sample.prompt, sample.kind, sample.temperature = mode.name, prompt.id, prompt.kind, temperature
    sample.repeat = repeat
    return sample
