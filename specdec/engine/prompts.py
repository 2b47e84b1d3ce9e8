"""From what a user gives as a prompt to token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specdec.errors import RequestError

LONGEST = 300  # characters of what a template or a tokenizer says
# text, token ids, {"prompt": text}, {"prompt_token_ids": ids} or {"messages": [{"role", "content"}, ...]}
Prompt = str | Sequence[int] | Mapping[str, Any]


def tokenize(prompt: Prompt, tokenizer: Any | None, use_chat: bool = False) -> list[int]:
    """Token ids of a prompt; ``use_chat`` wraps text in the chat template. Raises ``RequestError``."""
    if isinstance(prompt, Mapping):
        known = [key for key in ("prompt_token_ids", "messages", "prompt") if key in prompt]
        if not known:
            raise RequestError("a prompt given as a map needs one of prompt, prompt_token_ids, messages")
        if known[0] == "messages":
            return _chat(prompt["messages"], tokenizer)
        return tokenize(prompt[known[0]], tokenizer, use_chat)
    if isinstance(prompt, str):
        if tokenizer is None:
            raise RequestError("this target has no tokenizer, so its prompts must be token ids")
        if use_chat:
            return _chat([{"role": "user", "content": prompt}], tokenizer)
        try:
            return [int(t) for t in tokenizer.encode(prompt)]
        except (TypeError, ValueError) as error:  # for example half of a surrogate pair
            raise RequestError(f"the tokenizer cannot read this prompt: {_short(error)}") from error
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes):
        raise RequestError(f"a prompt must be text or a list of token ids (integers), not {type(prompt).__name__}")
    ids = list(prompt)
    if not all(isinstance(t, int) and not isinstance(t, bool) for t in ids):
        raise RequestError("a prompt must be text or a list of token ids (integers)")
    return ids


def _chat(messages: Any, tokenizer: Any | None) -> list[int]:
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        raise RequestError("this target has no chat template; give plain text or token ids")
    from specdec.engine.chat_template import TemplateLimit, bounded_templates

    try:
        with bounded_templates():
            ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
        return [int(t) for t in ids]
    except TemplateLimit as error:
        raise RequestError(f"the chat template was stopped: {error}") from error
    except Exception as error:  # templates are programs of the checkpoint and raise what they like
        raise RequestError(f"the chat template refuses these messages: {_short(error)}") from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
