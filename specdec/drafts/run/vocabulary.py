"""How a draft's token ids relate to the target's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from specdec.errors import EngineError

_SPACE_MARKS = ("Ġ", "▁")  # byte-level BPE and SentencePiece write a leading space so


class VocabularyError(EngineError):
    """Two vocabularies cannot be matched; the message says why."""


class VocabularyMap(Protocol):
    """Translates ids of committed tokens to the draft, and draft logits to the target."""

    def to_draft(self, token_ids: Sequence[int]) -> list[int]:
        """Draft ids, one for each target id."""

    def to_target(self, logits: torch.Tensor) -> torch.Tensor:
        """Draft logits [..., V_draft] over target ids [..., V' <= V_target]; -inf where the draft has no such token."""


class SharedPrefix:
    """Equal vocabularies, or two whose sizes differ in padding only: ids past the shorter one are never drafted."""

    def __init__(self, target_size: int, draft_size: int, fallback: int = 0) -> None:
        self.size = min(target_size, draft_size)
        self._draft_size, self._fallback = draft_size, fallback

    def to_draft(self, token_ids: Sequence[int]) -> list[int]:
        return [t if t < self._draft_size else self._fallback for t in token_ids]

    def to_target(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[..., : self.size]


class Intersection:
    """Two different vocabularies matched token by token; only tokens of both are drafted. Source: arXiv 2502.05202."""

    def __init__(self, target_size: int, pairs: Sequence[tuple[int, int]], fallback: int) -> None:
        self.target_size = target_size
        self._draft_of = dict(pairs)
        self._fallback = fallback
        self._target_ids = torch.tensor([t for t, _ in pairs])
        self._draft_ids = torch.tensor([d for _, d in pairs])

    @property
    def num_shared(self) -> int:
        """Tokens that both vocabularies have."""
        return len(self._draft_of)

    def to_draft(self, token_ids: Sequence[int]) -> list[int]:
        return [self._draft_of.get(t, self._fallback) for t in token_ids]

    def to_target(self, logits: torch.Tensor) -> torch.Tensor:
        if self._draft_ids.device != logits.device:
            self._target_ids, self._draft_ids = self._target_ids.to(logits.device), self._draft_ids.to(logits.device)
        out = logits.new_full((*logits.shape[:-1], self.target_size), float("-inf"))
        out[..., self._target_ids] = logits[..., self._draft_ids]
        return out


class ReducedVocabulary:
    """A head over some of the target's ids: row i stands for ``target_of[i]``; the others are never drafted."""

    def __init__(self, target_of: torch.Tensor, target_size: int) -> None:
        self._target_of, self._target_size = target_of, target_size
        self._ids: list[int] = target_of.tolist()

    def target_ids(self, draft_ids: Sequence[int]) -> list[int]:
        """Target ids of rows of the head."""
        return [self._ids[i] for i in draft_ids]

    def to_target(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [..., V_draft] over all of the target's ids; -inf where the head has no row."""
        out = logits.new_full((*logits.shape[:-1], self._target_size), float("-inf"))
        out[..., self._target_of] = logits
        return out


def intersect(target: Any, draft: Any, target_size: int, draft_size: int) -> Intersection:
    """Match the vocabularies of two transformers tokenizers by the bytes their tokens stand for.

    Special tokens match by their text, and EOS and unknown by their roles.

    Raises ``VocabularyError`` without both tokenizers or without a common token.
    """
    if target is None or draft is None:
        side = "target" if target is None else "draft"
        raise VocabularyError(f"use_heterogeneous_vocab matches tokens by their text, but the {side} has no tokenizer")
    ours, theirs = token_bytes(target), token_bytes(draft)
    draft_of = {key: token for token, key in reversed(theirs.items()) if token < draft_size}
    pairs = {token: draft_of[key] for token, key in ours.items() if token < target_size and key in draft_of}
    pairs |= _special_pairs(target, draft)
    if not pairs:
        raise VocabularyError("the target's and the draft's tokenizers have no token in common; choose another draft")
    unknown = draft.unk_token_id if draft.unk_token_id is not None else draft.eos_token_id
    return Intersection(target_size, sorted(pairs.items()), unknown or 0)


def _special_pairs(target: Any, draft: Any) -> dict[int, int]:
    ours, theirs = ({token: t.get_vocab().get(token) for token in t.all_special_tokens} for t in (target, draft))
    pairs = {i: theirs[token] for token, i in ours.items() if i is not None and theirs.get(token) is not None}
    for role in ("eos_token_id", "unk_token_id"):
        i, j = getattr(target, role), getattr(draft, role)
        if i is not None and j is not None:
            pairs[i] = j
    return pairs


def token_bytes(tokenizer: Any) -> dict[int, bytes]:
    """The bytes that each ordinary token id stands for, in order of ids; special tokens are left out."""
    vocab, special = tokenizer.get_vocab(), set(tokenizer.all_special_ids)
    marks = [sum(token.startswith(mark) for token in vocab) for mark in _SPACE_MARKS]
    decode = _byte_level if marks[0] > marks[1] else _sentencepiece
    return {i: decode(token) for token, i in sorted(vocab.items(), key=lambda item: item[1]) if i not in special}


def _sentencepiece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _byte_level(token: str) -> bytes:
    # added tokens may hold characters that stand for no byte; they mean themselves
    return bytes(_BYTES[c] for c in token) if all(c in _BYTES for c in token) else token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte: itself if printable, else the next code point from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_alphabet()
