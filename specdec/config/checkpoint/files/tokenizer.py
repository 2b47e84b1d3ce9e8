"""What a checkpoint's tokenizer says about its vocabulary, and whether two tokenizers agree id by id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specdec.config.checkpoint.files.bounds import regular_file, short
from specdec.config.checkpoint.files.errors import CheckpointFault

TOKENIZER_FILE = "tokenizer.json"
VOCAB_FILE = "vocab.json"
MAX_ID = 10_000_000  # the largest vocabularies have some 300,000 tokens
Agreement = Literal["identical", "extended", "different", "unknown"]


@dataclass(frozen=True)
class TokenizerInfo:
    """Token strings by id; ``added`` are the ids of added (often special) tokens."""

    tokens: Mapping[int, str]
    added: frozenset[int] = frozenset()
    source: str = ""

    @property
    def size(self) -> int:
        """One more than the highest id in use."""
        return max(self.tokens, default=-1) + 1


@dataclass(frozen=True)
class TokenizerComparison:
    """``extended``: equal up to the shorter one's end. ``first_difference`` is the first id whose strings differ."""

    agreement: Agreement
    first_difference: int | None = None
    target_token: str | None = None
    draft_token: str | None = None


def compare_tokenizers(target: TokenizerInfo | None, draft: TokenizerInfo | None) -> TokenizerComparison:
    """Compares token strings id by id; ``unknown`` when either tokenizer could not be read."""
    if target is None or draft is None or not target.tokens or not draft.tokens:
        return TokenizerComparison("unknown")
    if target.tokens == draft.tokens:
        return TokenizerComparison("identical")
    shared = min(target.size, draft.size)
    for token_id in sorted({*target.tokens, *draft.tokens}):  # ids may leave gaps of any size
        if token_id >= shared:
            break
        ours, theirs = target.tokens.get(token_id), draft.tokens.get(token_id)
        if ours != theirs:
            return TokenizerComparison("different", token_id, ours, theirs)
    longer = target if target.size > draft.size else draft
    return (
        TokenizerComparison("extended", shared, target.tokens.get(shared), draft.tokens.get(shared))
        if (longer.size > shared)
        else TokenizerComparison("identical")
    )


def tokenizer_from_list(tokens: Iterable[Any], source: str) -> TokenizerInfo:
    """From a list whose index is the token id."""
    return TokenizerInfo({i: str(t) for i, t in enumerate(tokens)}, source=source)


def read_tokenizer(directory: Path) -> TokenizerInfo | None:
    """From ``tokenizer.json`` or ``vocab.json``; None when neither is there. Raises CheckpointFault when damaged."""
    for name, parse in ((TOKENIZER_FILE, _from_tokenizer_json), (VOCAB_FILE, _from_vocab_json)):
        path = directory / name
        if path.is_file():
            regular_file(path)
            try:
                return parse(json.loads(path.read_text(encoding="utf-8")), name)
            except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise CheckpointFault(
                    f"{name} in {directory} is not a tokenizer file that can be read: {error}"
                ) from error
    return None


def _from_tokenizer_json(data: Any, source: str) -> TokenizerInfo:
    vocab = data["model"]["vocab"]
    tokens = (
        {int(i): t for t, i in vocab.items()} if isinstance(vocab, dict) else {i: v[0] for i, v in enumerate(vocab)}
    )
    added = {int(t["id"]): t["content"] for t in data.get("added_tokens") or ()}
    return _within_bounds(TokenizerInfo({**tokens, **added}, frozenset(added), source))


def _within_bounds(info: TokenizerInfo) -> TokenizerInfo:
    wrong = next((i for i in info.tokens if not 0 <= i < MAX_ID), None)
    if wrong is not None:
        raise ValueError(f"a token has the id {short(wrong)}")
    return info


def _from_vocab_json(data: Any, source: str) -> TokenizerInfo:
    return _within_bounds(TokenizerInfo({int(i): t for t, i in data.items()}, source=source))
