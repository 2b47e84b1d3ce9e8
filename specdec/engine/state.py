"""What a running request carries besides its tokens: sampling state, text, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.engine.outputs import TokenLogprob
from specdec.engine.requests import Request
from specdec.engine.sampling.rows import RequestSampling
from specdec.engine.sampling.stops import Cut, StopChecker
from specdec.errors import RequestError
from specdec.model.target import Target


class RequestState:
    """Filled by ``prepare`` once the request was checked."""

    sampling: RequestSampling
    stops: StopChecker

    def __init__(self) -> None:
        self.new_logprobs: list[TokenLogprob] = []  # of the block being pushed
        self.streamed_text = 0  # characters already handed out
        self.streamed_tokens = 0

    def prepare(self, request: Request, target: Target, max_model_len: int) -> None:
        """Build what sampling and ending need; raises ``SamplingParamsError`` for ids outside the vocabulary."""
        params, eos = request.params, tuple(target.eos_token_ids)
        words = bad_word_ids(params.bad_words or (), target.tokenizer)
        self.sampling = RequestSampling(params, request.prompt_token_ids, target.vocab_size, eos, words, target.device)
        self.stops = StopChecker(params, request.prompt_token_ids, max_model_len, eos, target.tokenizer)
        if params.logprobs is not None:
            request.logprobs = []

    def push(self, request: Request, tokens: list[int]) -> Cut:
        """Take emitted tokens: where the request ends, its text, its log-probabilities, its counts."""
        cut = self.stops.push(tokens)
        self.sampling.commit(tokens[: cut.kept])
        if request.logprobs is not None:
            request.logprobs += self.new_logprobs[: cut.kept]
            self.new_logprobs = []
        return cut

    @property
    def text(self) -> str:
        return self.stops.text if hasattr(self, "stops") else ""

    @property
    def streamable(self) -> tuple[int, int]:
        """(tokens, characters) that can no longer be cut."""
        return self.stops.streamable if hasattr(self, "stops") else (0, 0)

    @property
    def streamable_text(self) -> str:
        return self.stops.streamable_text if hasattr(self, "stops") else ""


def bad_word_ids(words: Sequence[str], tokenizer: Any | None) -> list[list[int]]:
    """Token sequences of forbidden words, with and without a leading space."""
    if words and tokenizer is None:
        raise RequestError("bad_words needs a tokenizer, which this target lacks; use bad_words_token_ids")
    out: list[list[int]] = []
    for word in words:
        for text in (word, " " + word.lstrip()):
            ids = list(tokenizer.encode(text, add_special_tokens=False))
            if ids and ids not in out:
                out.append(ids)
    return out
