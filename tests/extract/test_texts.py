"""What is learned of a prompt: masks of conversations, given masks, and what cannot be told."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.errors import RequestError
from specdec.extract.texts import text_of

HEADER, END = {"user": 1, "assistant": 2, "system": 3}, 9


class Tokenizer:
    """A chat template that puts a header before each turn and an end behind it; letters are 10 and up."""

    chat_template = "yes"

    def __init__(self, forgets: bool = False) -> None:
        self.forgets = forgets  # writes only the latest assistant's turn in full, as thinking models do

    def encode(self, text: str) -> list[int]:
        return [ord(c) - ord("a") + 10 for c in text]

    def apply_chat_template(self, messages: Any, add_generation_prompt: bool, return_dict: bool) -> list[int]:
        ids: list[int] = []
        for turn, message in enumerate(messages):
            short = self.forgets and message["role"] == "assistant" and turn < len(messages) - 1
            ids += [HEADER[message["role"]], *self.encode(message["content"])[: 1 if short else None], END]
        return ids + ([HEADER["assistant"]] if add_generation_prompt else [])


def turns(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def test_assistant_turns_are_learned():
    text = text_of({"messages": turns("ab", "cd", "e", "fg")}, Tokenizer())
    assert text.token_ids == [1, 10, 11, 9, 2, 12, 13, 9, 1, 14, 9, 2, 15, 16, 9]
    assert text.loss_mask == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]
    assert text.is_answered


def test_a_conversation_that_asks_is_a_prompt():
    text = text_of({"messages": turns("ab", "cd", "e")}, Tokenizer())
    assert text.token_ids[-2:] == [9, 2] and text.loss_mask is None and not text.is_answered


def test_plain_text_and_token_ids_say_nothing():
    assert text_of("ab", Tokenizer()).token_ids == [10, 11]
    assert text_of("ab", Tokenizer(), use_chat=True).token_ids == [1, 10, 11, 9, 2]
    assert text_of({"prompt_token_ids": [4, 5]}, None).loss_mask is None


def test_a_given_mask_is_taken():
    text = text_of({"prompt_token_ids": [4, 5, 6], "loss_mask": [0, 1, 1]}, None)
    assert (text.token_ids, text.loss_mask, text.is_answered) == ([4, 5, 6], [0, 1, 1], True)


@pytest.mark.parametrize(
    ("prompt", "tokenizer", "says"),
    [
        ({"prompt_token_ids": [4, 5], "loss_mask": [1]}, None, "1 values for 2 tokens"),
        ({"prompt_token_ids": [4, 5], "loss_mask": [1, 2]}, None, "list of 0 and 1"),
        ({"prompt_token_ids": [4, 5], "loss_mask": 3}, None, "list of 0 and 1"),
        ({"messages": turns("a", "b")}, None, "no chat template"),
        ({"messages": turns("a", "b")[1:]}, Tokenizer(), "begin with an assistant's turn"),
        ({"messages": turns("ab", "cd", "e", "fg")}, Tokenizer(forgets=True), "writes earlier turns differently"),
        ({"messages": [{"role": "user"}, {"role": "assistant"}]}, Tokenizer(), "refuses these messages"),
    ],
)
def test_what_cannot_be_told_is_refused(prompt, tokenizer, says):
    with pytest.raises(RequestError, match=says):
        text_of(prompt, tokenizer)
