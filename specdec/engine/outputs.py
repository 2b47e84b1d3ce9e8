"""What a request gives back: text, tokens, why it ended, and how speculation did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SpeculationStats:
    """Counts of one request's rounds. A round is one verify forward that emits at least one token.

    ``drafted``: draft tokens that were verified. ``accepted``: those that became output. ``per_position[i]`` =
    (rounds that drafted position i, rounds that accepted it).
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)

    def observe(self, drafted: int, accepted: int) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        while len(self.drafted_per_position) < drafted:
            self.drafted_per_position.append(0)
            self.accepted_per_position.append(0)
        for i in range(drafted):
            self.drafted_per_position[i] += 1
            self.accepted_per_position[i] += i < accepted

    @property
    def mean_accepted_length(self) -> float:
        """Tokens emitted per round: accepted drafts plus the bonus or correction token."""
        return 1.0 + self.accepted / self.rounds if self.rounds else 0.0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of the rounds that drafted position i which accepted it."""
        pairs = zip(self.accepted_per_position, self.drafted_per_position, strict=True)
        return [accepted / drafted for accepted, drafted in pairs]

    def to_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance_rate": self.acceptance_rate,
            "acceptance_per_position": self.acceptance_per_position,
            "mean_accepted_length": self.mean_accepted_length,
        }


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of an emitted token under the target, before temperature and truncation."""

    token_id: int
    logprob: float  # nats
    rank: int  # 1 = the likeliest
    top: dict[int, float]  # token id -> logprob of the likeliest tokens, as many as were asked for

    def to_dict(self) -> dict[str, Any]:
        return {"token_id": self.token_id, "logprob": self.logprob, "rank": self.rank, "top": self.top}


@dataclass
class CompletionOutput:
    """One completion of a prompt."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None  # stop | length | abort | error; None while running
    stop_reason: int | str | None = None  # the stop id or string that ended it
    logprobs: list[TokenLogprob] | None = None  # per token, when SamplingParams.logprobs asks for them
    error: str | None = None
    speculation: SpeculationStats = field(default_factory=SpeculationStats)

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "index": self.index,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "speculation": self.speculation.to_dict(),
        }
        if self.logprobs is not None:
            out["logprobs"] = [entry.to_dict() for entry in self.logprobs]
        if self.error is not None:
            out["error"] = self.error
        return out


@dataclass
class RequestOutput:
    """All completions of one prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True
    metrics: dict[str, float] = field(default_factory=dict)  # seconds: queue_time, time_to_first_token, total_time

    @property
    def error(self) -> str | None:
        """The first completion's error, if any failed."""
        return next((o.error for o in self.outputs if o.error is not None), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "prompt": self.prompt,
            "num_prompt_tokens": len(self.prompt_token_ids),
            "outputs": [o.to_dict() for o in self.outputs],
            "metrics": self.metrics,
        }


@dataclass(frozen=True)
class Delta:
    """A piece of a streamed completion."""

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    error: str | None = None
