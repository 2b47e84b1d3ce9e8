"""Text of a growing token sequence, piece by piece, never splitting a character over two pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_CONTEXT = 5  # prompt tokens decoded along, because the text of a token can depend on its neighbours
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Turns the output tokens of one request into text; ``tokenizer`` needs only ``decode``."""

    def __init__(self, tokenizer: Any, prompt_token_ids: Sequence[int], skip_special_tokens: bool = True) -> None:
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._ids = list(prompt_token_ids[-_CONTEXT:])
        self._decoded = self._decode()  # text of ids[:_read], which the next piece starts after
        self._read = len(self._ids)

    def _decode(self) -> str:
        return str(
            self._tokenizer.decode(self._ids, skip_special_tokens=self._skip, clean_up_tokenization_spaces=False)
        )

    def push(self, token_id: int) -> str:
        """New text that ``token_id`` completes; empty while a character still lacks bytes."""
        self._ids.append(token_id)
        text = self._decode()
        if len(text) <= len(self._decoded) or text.endswith(_INCOMPLETE):
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
