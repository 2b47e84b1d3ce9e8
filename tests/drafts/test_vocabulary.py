"""Vocabulary maps: padding, and token-level intersection through the bytes tokens stand for."""

from __future__ import annotations

import pytest
import torch

from specdec.drafts.run.vocabulary import SharedPrefix, VocabularyError, intersect, token_bytes

NEG_INF = float("-inf")


class Tokenizer:
    """What the maps ask of a transformers tokenizer."""

    def __init__(self, tokens: list[str], eos: int, unk: int | None = None) -> None:
        self.tokens, self.eos_token_id, self.unk_token_id = tokens, eos, unk
        self.all_special_ids = [i for i in (eos, unk) if i is not None]
        self.all_special_tokens = [tokens[i] for i in self.all_special_ids]

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}


BYTE_LEVEL = Tokenizer(["<|end|>", "Ġthe", "the", "Ċ", "Ã©", "Ġx"], eos=0)
SENTENCEPIECE = Tokenizer(["<unk>", "</s>", "▁the", "<0x0A>", "é", "zz", "the", "▁▁"], eos=1, unk=0)


def test_tokens_are_compared_as_bytes() -> None:
    assert token_bytes(BYTE_LEVEL) == {1: b" the", 2: b"the", 3: b"\n", 4: "é".encode(), 5: b" x"}
    assert token_bytes(SENTENCEPIECE)[2] == b" the"
    assert token_bytes(SENTENCEPIECE)[3] == b"\n"


def test_intersection_maps_both_ways() -> None:
    both = intersect(BYTE_LEVEL, SENTENCEPIECE, 6, 8)
    assert both.num_shared == 5
    # <|end|> is </s>; " x" is unknown to the draft
    assert both.to_draft([0, 1, 2, 3, 4, 5]) == [1, 2, 6, 3, 4, 0]
    logits = both.to_target(torch.arange(8.0)[None])
    assert logits.tolist() == [[1.0, 2.0, 6.0, 3.0, 4.0, NEG_INF]]


def test_ids_past_the_models_are_left_out() -> None:
    assert intersect(BYTE_LEVEL, SENTENCEPIECE, 6, 5).to_target(torch.arange(5.0)).tolist()[2] == NEG_INF
    assert intersect(BYTE_LEVEL, SENTENCEPIECE, 3, 8).to_target(torch.arange(8.0)).shape == (3,)


def test_what_cannot_be_matched_says_why() -> None:
    with pytest.raises(VocabularyError, match="the draft has no tokenizer"):
        intersect(BYTE_LEVEL, None, 6, 8)
    alien = Tokenizer(["qq", "ww"], eos=None)  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match="no token in common"):
        intersect(BYTE_LEVEL, alien, 6, 2)


def test_padding_only() -> None:
    wide_target = SharedPrefix(target_size=8, draft_size=5)
    assert wide_target.to_draft([0, 4, 5, 7]) == [0, 4, 0, 0]
    assert wide_target.to_target(torch.arange(5.0)).shape == (5,)
    assert SharedPrefix(target_size=5, draft_size=8).to_target(torch.arange(8.0)).tolist() == [0, 1, 2, 3, 4]
