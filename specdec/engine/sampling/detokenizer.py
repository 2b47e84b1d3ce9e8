"""Text of a growing token sequence, piece by piece, never splitting a character over two pieces."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

_CONTEXT = 5  # prompt tokens decoded along, because the text of a token can depend on its neighbours
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Turns the output tokens of one request into text; ``tokenizer`` needs only ``decode``."""

    def __init__(self, tokenizer: Any, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True) -> None:
        self._text_of = decoder(tokenizer, skip_special_tokens)
        self._alone: dict[int, str] = {}  # texts of single tokens
        self._ids = list(prompt_token_ids[-_CONTEXT:])
        self._decoded = self._decode()  # text of ids[:_read], which the next piece starts after
        self._read = len(self._ids)
        self.holds = False  # bytes of a character that is not complete

    def _decode(self) -> str:
        if len(self._ids) > 1:
            return self._text_of(self._ids)
        key = self._ids[0] if self._ids else -1
        if key not in self._alone:
            self._alone[key] = self._text_of(self._ids)
        return self._alone[key]

    def push(self, token_id: int) -> str:
        """New text that ``token_id`` completes; empty while a character still lacks bytes."""
        self._ids.append(token_id)
        text = self._decode()
        self.holds = text.endswith(_INCOMPLETE)
        if len(text) <= len(self._decoded) or self.holds:
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """What is left at the end, incomplete characters included."""
        return self._advance(self._decode())

    def _advance(self, text: str) -> str:
        piece = text[len(self._decoded) :]
        # the tokens of this piece stay as context, all before them are dropped
        self._ids = self._ids[self._read :] or self._ids
        self._read = len(self._ids)
        self._decoded = self._decode()
        return piece


def decoder(tokenizer: Any, skip_special_tokens: bool) -> Callable[[list[int]], str]:
    """Ids to text without clean-up, through as few layers as the tokenizer allows: it runs for every token."""
    stock = sys.modules.get("transformers.tokenization_utils_tokenizers")
    if stock is not None and isinstance(tokenizer, stock.TokenizersBackend):
        kind, plain = type(tokenizer), stock.TokenizersBackend
        if kind.decode is plain.decode and kind._decode is plain._decode:
            return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=skip_special_tokens)
    options = {"skip_special_tokens": skip_special_tokens, "clean_up_tokenization_spaces": False}
    return lambda ids: str(tokenizer.decode(ids, **options))
