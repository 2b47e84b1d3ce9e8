"""Counters of speculation, per request and pooled, and every number that is derived from them, defined once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def ratio(numerator: float, denominator: float) -> float | None:
    """numerator / denominator, None when nothing was counted."""
    return numerator / denominator if denominator else None


def _padded(values: list[int], length: int) -> list[int]:
    return values + [0] * (length - len(values))


@dataclass
class SpeculationCounts:
    """What verify steps counted. A *step* is one target forward that emitted at least one token of a request."""

    steps: int = 0
    steps_with_drafts: int = 0
    drafted: int = 0  # draft tokens that were verified
    verifier_accepted: int = 0  # draft tokens that verification accepted, also those cut away by an end
    emitted: int = 0  # tokens the request received, bonus and correction tokens included
    drafted_per_position: list[int] = field(default_factory=list)
    reached_per_position: list[int] = field(default_factory=list)  # drafts whose predecessors all held
    accepted_per_position: list[int] = field(default_factory=list)

    def record_step(self, drafted: int, accepted: int, emitted: int) -> None:
        """One step: ``drafted`` tokens were verified, the first ``accepted`` held, the request kept ``emitted``."""
        assert 0 <= accepted <= drafted and 0 <= emitted <= accepted + 1, (drafted, accepted, emitted)
        self.steps += 1
        self.steps_with_drafts += drafted > 0
        self.drafted += drafted
        self.verifier_accepted += accepted
        self.emitted += emitted
        for counts, number in (
            (self.drafted_per_position, drafted),
            (self.reached_per_position, min(accepted + 1, drafted)),
            (self.accepted_per_position, accepted),
        ):
            counts.extend([0] * (number - len(counts)))
            for i in range(number):
                counts[i] += 1

    def add(self, other: SpeculationCounts) -> None:
        """Pool the counts of ``other`` into these."""
        for name in ("steps", "steps_with_drafts", "drafted", "verifier_accepted", "emitted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("drafted_per_position", "reached_per_position", "accepted_per_position"):
            mine, theirs = getattr(self, name), getattr(other, name)
            mine.extend([0] * (len(theirs) - len(mine)))
            for i, value in enumerate(theirs):
                mine[i] += value

    @property
    def mean_emitted_per_step(self) -> float | None:
        """emitted / steps: how many tokens a target forward is worth to the request."""
        return ratio(self.emitted, self.steps)

    @property
    def mean_accepted_length(self) -> float | None:
        """1 + verifier_accepted / steps_with_drafts: the papers' number, over steps that drafted, ends not cut."""
        accepted = ratio(self.verifier_accepted, self.steps_with_drafts)
        return None if accepted is None else 1.0 + accepted

    @property
    def acceptance_rate(self) -> float | None:
        """verifier_accepted / drafted."""
        return ratio(self.verifier_accepted, self.drafted)

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of the drafts at each position (0-based) that held together with all drafts before them."""
        return [a / d for a, d in zip(self._accepted(), self.drafted_per_position, strict=True)]

    @property
    def conditional_acceptance_per_position(self) -> list[float | None]:
        """Share that held among the drafts whose predecessors held; None where no draft got that far."""
        reached = _padded(self.reached_per_position, len(self.drafted_per_position))
        return [ratio(a, r) for a, r in zip(self._accepted(), reached, strict=True)]

    def _accepted(self) -> list[int]:
        return _padded(self.accepted_per_position, len(self.drafted_per_position))

    def to_dict(self) -> dict[str, Any]:
        """Counts and derived numbers under their documented names."""
        return {
            "steps": self.steps,
            "steps_with_drafts": self.steps_with_drafts,
            "drafted": self.drafted,
            "verifier_accepted": self.verifier_accepted,
            "emitted": self.emitted,
            "mean_emitted_per_step": self.mean_emitted_per_step,
            "mean_accepted_length": self.mean_accepted_length,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_per_position": self.acceptance_per_position,
            "conditional_acceptance_per_position": self.conditional_acceptance_per_position,
        }


@dataclass
class RequestMetrics:
    """One request's counts and times (seconds on one monotonic clock)."""

    arrival_time: float = 0.0
    first_token_time: float | None = None
    finish_time: float | None = None
    prompt_tokens: int = 0
    finish_reason: str | None = None
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)

    @property
    def seconds_to_first_token(self) -> float | None:
        """From arrival to the first emitted token."""
        return None if self.first_token_time is None else self.first_token_time - self.arrival_time

    @property
    def tokens_per_second(self) -> float | None:
        """Emitted tokens over the time from arrival to finish, prompt processing included."""
        return None if self.finish_time is None else ratio(self.counts.emitted, self.finish_time - self.arrival_time)

    def to_dict(self) -> dict[str, Any]:
        """For one JSON line."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "finish_reason": self.finish_reason,
            "seconds_to_first_token": self.seconds_to_first_token,
            "tokens_per_second": self.tokens_per_second,
            **self.counts.to_dict(),
        }


class EngineMetrics:
    """Counts of all finished requests and the time spent in each phase of the engine's steps."""

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.labels = dict(labels or {})  # for example {"method": ..., "guarantee": ...}
        self.pooled = SpeculationCounts()
        self.seconds: dict[str, float] = {}  # phase (prefill, draft, verify, sample, ...) -> seconds
        self.requests: dict[str, int] = {}  # finish reason -> requests
        self._sum_of_means, self._requests_with_steps = 0.0, 0

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Account time to a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def finish(self, request: RequestMetrics) -> None:
        """Pool a finished or aborted request."""
        reason = request.finish_reason or "abort"
        self.requests[reason] = self.requests.get(reason, 0) + 1
        self.pooled.add(request.counts)
        mean = request.counts.mean_emitted_per_step
        if mean is not None:
            self._sum_of_means += mean
            self._requests_with_steps += 1

    @property
    def mean_of_requests(self) -> float | None:
        """Mean over requests of their own emitted / steps; the pooled number weighs requests by their steps."""
        return ratio(self._sum_of_means, self._requests_with_steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything, under documented names."""
        pooled = self.pooled.to_dict()
        return {
            **self.labels,
            "requests": dict(self.requests),
            "seconds": dict(self.seconds),
            **pooled,
            "mean_emitted_per_step": {
                "pooled": pooled["mean_emitted_per_step"],
                "mean_of_requests": self.mean_of_requests,
            },
        }

    def prometheus(self) -> str:
        """The counters in Prometheus' text format; ratios are left to the reader of the counters."""
        p = self.pooled
        lines: list[str] = []
        counters = (
            ("verify_steps_total", "Target forwards that emitted tokens of a request.", p.steps),
            ("drafting_steps_total", "Verify steps that had drafts.", p.steps_with_drafts),
            ("draft_tokens_total", "Draft tokens verified.", p.drafted),
            ("accepted_tokens_total", "Draft tokens accepted by verification.", p.verifier_accepted),
            ("emitted_tokens_total", "Tokens that requests received.", p.emitted),
        )
        for name, summary, value in counters:
            lines += self._family(name, summary, [({}, value)])
        for name, summary, values in (
            ("draft_tokens_per_position_total", "Draft tokens verified, by position.", p.drafted_per_position),
            ("accepted_tokens_per_position_total", "Draft tokens accepted, by position.", p.accepted_per_position),
        ):
            lines += self._family(name, summary, [({"position": str(i)}, v) for i, v in enumerate(values)])
        by_reason = [({"finish_reason": reason}, count) for reason, count in self.requests.items()]
        lines += self._family("requests_total", "Finished requests.", by_reason)
        by_phase = [({"phase": phase}, seconds) for phase, seconds in self.seconds.items()]
        lines += self._family("phase_seconds_total", "Engine time by phase.", by_phase)
        return "\n".join(lines) + "\n"

    def _family(self, name: str, summary: str, samples: Iterable[tuple[dict[str, str], float]]) -> list[str]:
        lines = [f"# HELP specdec_{name} {summary}", f"# TYPE specdec_{name} counter"]
        for labels, value in samples:
            pairs = ",".join(f"{k}={json.dumps(v)}" for k, v in {**self.labels, **labels}.items())
            lines.append(f"specdec_{name}{{{pairs}}} {value}" if pairs else f"specdec_{name} {value}")
        return lines


def json_line(values: dict[str, Any]) -> str:
    """One line of JSON without a newline."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
