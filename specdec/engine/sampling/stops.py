"""Where a request ends: EOS, stop ids, stop strings across token borders, and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec.engine.sampling.detokenizer import Detokenizer
from specdec.engine.sampling.sampling_params import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Cut:
    """How much of a block of emitted tokens belongs to the request."""

    kept: int  # leading tokens of the block; those after an end are dropped
    finish_reason: FinishReason | None = None  # None = the request goes on
    stop_reason: int | str | None = None  # the stop token id or stop string; None for EOS and lengths


class StopChecker:
    """Follows one request's output, block by block, and cuts the block in which the request ends.

    Ends, first one in token order wins: EOS (unless ``ignore_eos``), ``stop_token_ids``, stop strings, ``max_tokens``,
    ``max_model_len``. EOS, stop ids and stop strings do not end a request before ``min_tokens``. The token that ends
    the request is kept in the ids; the stop string and the text of a stop id are not in the text, unless
    ``include_stop_str_in_output``. ``tokenizer=None`` means no text.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        max_model_len: int,
        eos_token_ids: Sequence[int] = (),
        tokenizer: Any | None = None,
    ) -> None:
        self._params = params
        self._eos = frozenset(() if params.ignore_eos else eos_token_ids)
        self._stop_ids = frozenset(params.stop_token_ids or ())
        room = max_model_len - len(prompt_token_ids)
        self._limit = room if params.max_tokens is None else min(room, params.max_tokens)
        self._detokenizer = (
            Detokenizer(tokenizer, prompt_token_ids, params.skip_special_tokens)
            if tokenizer is not None and params.detokenize
            else None
        )
        self._count = 0
        self._text = ""
        self._borders: list[tuple[int, int]] = []  # (tokens, characters) wherever a token ends a character
        self._end: int | None = None  # characters that belong to the output, once finished

    @property
    def tokens_left(self) -> int:
        """Output tokens that still fit; drafting more than this minus one is waste."""
        return max(0, self._limit - self._count)

    @property
    def text(self) -> str:
        """All text so far, without the stop string once the request ended."""
        return self._text[: self._end]

    @property
    def streamable(self) -> tuple[int, int]:
        """(tokens, characters) of the longest start that ends with a token and can no longer be cut."""
        if self._detokenizer is None:
            return self._count, 0
        settled = len(self.streamable_text)
        return next((border for border in reversed(self._borders) if border[1] <= settled), (0, 0))

    @property
    def streamable_text(self) -> str:
        """The text that can no longer be cut: without a tail that may turn out to begin a stop string."""
        if self._end is not None:
            return self.text
        held = max((_overlap(self._text, stop) for stop in self._params.stop or ()), default=0)
        return self._text[: len(self._text) - held]

    def push(self, block: Sequence[int]) -> Cut:
        """Take the tokens of one verify step and say how many the request keeps."""
        assert self._end is None, "the request has ended"
        for i, token in enumerate(block):
            cut = self._push_one(token, i + 1)
            if cut is not None:
                return cut
        return Cut(len(block))

    def _push_one(self, token: int, kept: int) -> Cut | None:
        self._count += 1
        may_stop = self._count >= self._params.min_tokens
        if may_stop and (token in self._eos or token in self._stop_ids):
            is_eos = token in self._eos
            if self._params.include_stop_str_in_output:
                self._add_text(token)
            self._finish()
            return Cut(kept, "stop", None if is_eos else token)
        searched = len(self._text)
        self._add_text(token)
        if self._count >= self._limit:
            self._finish()
        if may_stop and (found := self._find_stop(searched)) is not None:
            start, stop = found
            self._end = start + (len(stop) if self._params.include_stop_str_in_output else 0)
            return Cut(kept, "stop", stop)
        return Cut(kept, "length") if self._count >= self._limit else None

    def _add_text(self, token: int) -> None:
        if self._detokenizer is not None:
            self._text += self._detokenizer.push(token)
            if not self._detokenizer.holds:
                self._borders.append((self._count, len(self._text)))

    def _find_stop(self, searched: int) -> tuple[int, str] | None:
        """The stop string that begins first among those that end in the text after ``searched``."""
        found = []
        for stop in self._params.stop or ():
            start = self._text.find(stop, max(0, searched - len(stop) + 1))
            if start >= 0:
                found.append((start, stop))
        return min(found) if found else None

    def _finish(self) -> None:
        if self._detokenizer is not None:
            self._text += self._detokenizer.flush()
        self._end = len(self._text)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of ``stop`` that ``text`` ends with."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
