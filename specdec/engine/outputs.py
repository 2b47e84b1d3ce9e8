"""What a request gives back: text, tokens, why it ended, and how speculation did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specdec.engine.metrics import RequestMetrics, SpeculationCounts


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
    metrics: RequestMetrics = field(default_factory=RequestMetrics)  # counts of speculation, times

    @property
    def speculation(self) -> SpeculationCounts:
        """What verification counted: drafted, accepted, per position, steps, mean accepted length."""
        return self.metrics.counts

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "index": self.index,
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stop_reason,
            "metrics": self.metrics.to_dict(),
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
    method: str | None = None  # of the speculator; None = plain decoding
    guarantee: str = "lossless"  # lossless | lossy: whether the text follows the target's distribution

    @property
    def error(self) -> str | None:
        """The first completion's error, if any failed."""
        return next((o.error for o in self.outputs if o.error is not None), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "prompt": self.prompt,
            "num_prompt_tokens": len(self.prompt_token_ids),
            "method": self.method,
            "guarantee": self.guarantee,
            "outputs": [o.to_dict() for o in self.outputs],
        }


@dataclass(frozen=True)
class Delta:
    """A piece of a streamed completion: whole tokens, and exactly their text."""

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None = None
    error: str | None = None
    stop_reason: int | str | None = None  # the stop id or string, in the last piece
    logprobs: list[TokenLogprob] | None = None  # of ``token_ids``, when asked for
