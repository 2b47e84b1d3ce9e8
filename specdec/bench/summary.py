"""Reduce samples to the numbers of the report: medians and ranges over prompts, never means of ratios."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from specdec.bench.paired import NO, OPEN, Paired, compare
from specdec.bench.samples import Sample


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest over prompts."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}..{self.high:.2f}]"


@dataclass(frozen=True)
class Row:
    """One mode at one temperature."""

    mode: str
    temperature: float
    prompts: int
    tokens_per_second: Spread
    versus_plain: Spread | None  # ratio of speeds, prompt by prompt, to our plain decoding
    versus_reference: Spread | None  # the same to the reference peer's plain decoding
    tau: Spread  # new tokens per target forward
    acceptance: float | None  # accepted drafts over drafts, pooled
    acceptance_per_position: list[float]
    overhead: float | None  # median share of time outside target forwards and drafting
    drafting: float | None  # median share of time spent drafting
    same_as_plain: int | None  # prompts whose greedy text equals our plain decoding's
    paired: list[Paired]  # against our plain decoding, prompt by prompt
    disturbed: int  # samples taken while others used the CPU

    @property
    def losses(self) -> list[str]:
        """Prompts shown to be slower than plain decoding by more than 3 %."""
        return [p.prompt for p in self.paired if p.within_aim == NO]

    @property
    def undecided(self) -> list[str]:
        """Prompts where the repeats show neither that nor its opposite."""
        return [p.prompt for p in self.paired if p.within_aim == OPEN]

    def to_dict(self) -> dict[str, object]:
        verdicts = [{"verdict": p.verdict, "within_aim": p.within_aim} for p in self.paired]
        paired = [asdict(p) | v for p, v in zip(self.paired, verdicts, strict=True)]
        return asdict(self) | {"paired": paired, "losses": self.losses, "undecided": self.undecided}


def summarize(samples: Sequence[Sample], plain: str, reference: str | None) -> list[Row]:
    """A row per mode and temperature, in the order modes first appear."""
    groups: dict[tuple[float, str], dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    order: list[str] = []
    for sample in samples:
        groups[sample.temperature, sample.mode][sample.prompt].append(sample)
        if sample.mode not in order:
            order.append(sample.mode)
    rows = []
    for temperature in sorted({t for t, _ in groups}):
        for mode in order:
            if (temperature, mode) in groups:
                by_plain = groups.get((temperature, plain), {})
                by_reference = groups.get((temperature, reference or ""), {})
                rows.append(_row(mode, temperature, groups[temperature, mode], by_plain, by_reference, mode == plain))
    return rows


def versus(samples: Sequence[Sample], mode: str, other: str, temperature: float) -> Spread | None:
    """Ratios of the speeds of two modes over the prompts that both ran."""
    speeds: dict[str, dict[str, list[Sample]]] = {mode: defaultdict(list), other: defaultdict(list)}
    for s in samples:
        if s.mode in speeds and s.temperature == temperature:
            speeds[s.mode][s.prompt].append(s)
    ratios = [p.ratio for p in _paired(speeds[mode], speeds[other])]
    return Spread.of(ratios) if ratios else None


def _speed(samples: Sequence[Sample]) -> float:
    return median(s.tokens_per_second for s in samples)


def _paired(mine: dict[str, list[Sample]], base: dict[str, list[Sample]]) -> list[Paired]:
    found = [compare(samples, base[p]) for p, samples in mine.items() if p in base]
    return [one for one in found if one is not None]


def _row(
    mode: str,
    temperature: float,
    mine: dict[str, list[Sample]],
    plain: dict[str, list[Sample]],
    reference: dict[str, list[Sample]],
    is_plain: bool,
) -> Row:
    every = [s for samples in mine.values() for s in samples]
    to_plain, to_reference = _paired(mine, plain), _paired(mine, reference)
    drafted, accepted = _pooled(every, "drafted_per_position"), _pooled(every, "accepted_per_position")
    same = None
    if temperature == 0 and plain and not is_plain:
        same = sum(all(a.token_ids == plain[p][0].token_ids for a in s) for p, s in mine.items() if p in plain)
    return Row(
        mode=mode,
        temperature=temperature,
        prompts=len(mine),
        tokens_per_second=Spread.of([_speed(s) for s in mine.values()]),
        versus_plain=Spread.of([p.ratio for p in to_plain]) if to_plain else None,
        versus_reference=Spread.of([p.ratio for p in to_reference]) if to_reference else None,
        tau=Spread.of([median(s.tau for s in samples) for samples in mine.values()]),
        acceptance=sum(accepted) / sum(drafted) if sum(drafted) else None,
        acceptance_per_position=[a / d for a, d in zip(accepted, drafted, strict=True) if d],
        overhead=_median([s.overhead for s in every]),
        drafting=_median([s.drafting for s in every]),
        same_as_plain=same,
        paired=[] if is_plain else to_plain,
        disturbed=sum(s.disturbed for s in every),
    )


def _pooled(samples: Sequence[Sample], name: str) -> list[int]:
    width = max((len(s.drafted_per_position) for s in samples), default=0)
    total = [0] * width
    for sample in samples:
        for i, value in enumerate(getattr(sample, name)):
            total[i] += value
    return total


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None
