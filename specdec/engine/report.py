"""From requests to the outputs users see."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.engine.outputs import CompletionOutput, RequestOutput
from specdec.engine.requests import Request


def completion(request: Request) -> CompletionOutput:
    """One completion as it stands now."""
    return CompletionOutput(
        index=request.child,
        text=request.state.text,
        token_ids=request.output_token_ids,
        finish_reason=request.finish_reason,
        stop_reason=request.stop_reason,
        logprobs=request.logprobs,
        error=request.error,
        metrics=request.metrics,
    )


def request_output(group: Sequence[Request], config: SpeculativeConfig | None = None) -> RequestOutput:
    """The output of a prompt from its completions, labelled by what the configuration promises."""
    first = group[0]
    return RequestOutput(
        request_id=first.request_id,
        prompt=first.prompt,
        prompt_token_ids=first.prompt_token_ids,
        outputs=[completion(r) for r in group],
        finished=all(r.finished for r in group),
        **labels(config),
    )


def labels(config: SpeculativeConfig | None) -> dict[str, str]:
    """What outputs and metrics say about a configuration; nothing for plain decoding."""
    if config is None:
        return {}
    return {"method": config.method, "guarantee": config.get("verification.guarantee") or "lossless"}
