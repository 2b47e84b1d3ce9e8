"""What a target is run over: token ids, and which of them a trainer learns to draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.engine.chat_template import bounded_templates
from specdec.engine.prompts import Prompt, tokenize
from specdec.errors import RequestError

_ANSWERING = "assistant"  # the role whose turns a trainer learns from


@dataclass(frozen=True)
class Text:
    """One prompt, or a conversation that already holds its answers."""

    token_ids: list[int]
    loss_mask: list[int] | None = None  # per token; None = it does not say
    is_answered: bool = False  # nothing is to be generated


def text_of(prompt: Prompt, tokenizer: Any | None, use_chat: bool = False) -> Text:
    """Token ids of a prompt, with a mask where it says what to learn.

    ``{"messages": [...]}`` that end with an assistant's turn are answered: their assistant turns are learned.
    ``{"prompt_token_ids": ..., "loss_mask": ...}`` is taken as it is. Raises ``RequestError``.
    """
    if isinstance(prompt, Mapping):
        if prompt.get("loss_mask") is not None:
            return _with_mask(tokenize(prompt, tokenizer), prompt["loss_mask"])
        messages = prompt.get("messages")
        if isinstance(messages, list) and messages and _role(messages[-1]) == _ANSWERING:
            return _conversation(messages, tokenizer)
    return Text(tokenize(prompt, tokenizer, use_chat))


def _with_mask(token_ids: list[int], mask: Any) -> Text:
    if not isinstance(mask, Sequence) or any(value not in (0, 1) for value in mask):
        raise RequestError("loss_mask must be a list of 0 and 1")
    if len(mask) != len(token_ids):
        raise RequestError(f"loss_mask has {len(mask)} values for {len(token_ids)} tokens; give one each")
    return Text(token_ids, [int(value) for value in mask], is_answered=True)


def _conversation(messages: list[Any], tokenizer: Any | None) -> Text:
    """The whole conversation in the chat template; learned is what stands behind each assistant's header."""
    token_ids = _templated(messages, tokenizer, False)
    mask = [0] * len(token_ids)
    for turn, message in enumerate(messages):
        if _role(message) != _ANSWERING:
            continue
        if turn == 0:
            raise RequestError("a conversation must not begin with an assistant's turn")
        before, after = _templated(messages[:turn], tokenizer, True), _templated(messages[: turn + 1], tokenizer, False)
        if token_ids[: len(after)] != after or after[: len(before)] != before:
            raise RequestError(
                "the chat template writes earlier turns differently once more follow, so what the assistant wrote cannot "
                "be told; give prompt_token_ids and loss_mask instead"
            )
        mask[len(before) : len(after)] = [1] * (len(after) - len(before))
    return Text(token_ids, mask, is_answered=True)


def _templated(messages: list[Any], tokenizer: Any | None, opens_answer: bool) -> list[int]:
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise RequestError("this target has no chat template; give plain text or token ids")
    try:
        with bounded_templates():
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=opens_answer, return_dict=False)
    except Exception as error:  # templates are programs of the checkpoint and raise what they like
        raise RequestError(f"the chat template refuses these messages: {error}") from error
    return [int(token) for token in ids]


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None
