"""Prompts for ``generate`` and ``bench``: from arguments, a JSON-lines file, or standard input."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, TextIO

from specdec.files import TextFileError, check_text, decode, read_text

TEXT_KEYS = ("prompt", "text")


class PromptFileError(ValueError):
    """The prompts could not be read; the message says where and what is allowed."""


def read_prompts(given: Sequence[str], file: str | None, stdin: TextIO) -> list[Any]:
    """Prompts in order: arguments, then the file's lines, else standard input as one prompt.

    Raises ``PromptFileError`` for a missing file, a line that is not JSON or holds no prompt, and when there is none.
    """
    try:
        return _read_prompts(given, file, stdin)
    except TextFileError as error:
        raise PromptFileError(str(error)) from None


def _read_prompts(given: Sequence[str], file: str | None, stdin: TextIO) -> list[Any]:
    prompts: list[Any] = [check_text(prompt, "--prompt") for prompt in given]
    if file is not None:
        listed = _from_file(file, stdin)
        if not listed:
            raise PromptFileError(f"no prompt in {file}; write one JSON string or object a line")
        prompts += listed
    if not prompts and not stdin.isatty():
        text = _from_stream(stdin).strip()
        prompts = [text] if text else []
    if not prompts:
        raise PromptFileError("no prompt; use --prompt TEXT, --prompts FILE.jsonl, or pipe text in")
    return prompts


def _from_file(file: str, stdin: TextIO) -> list[Any]:
    if file != "-" and not os.path.exists(file):
        raise PromptFileError(f"no file '{file}'")
    text = _from_stream(stdin) if file == "-" else read_text(file)
    return [_prompt(line, f"{file}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _from_stream(stdin: TextIO) -> str:
    """Standard input as UTF-8, whatever the locale says."""
    stream = getattr(stdin, "buffer", None)
    return stdin.read() if stream is None else decode(stream.read(), "standard input")


def _prompt(line: str, where: str) -> Any:
    """One line: a JSON string, or an object with a prompt under one of the known keys."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise PromptFileError(f'{where}: not JSON; write one object a line, for example {{"prompt": "..."}}') from None
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in TEXT_KEYS:
            if isinstance(value.get(key), str):
                return value[key]
        if isinstance(value.get("turns"), list) and value["turns"] and isinstance(value["turns"][0], str):
            return value["turns"][0]
        for key in ("messages", "prompt_token_ids"):
            if isinstance(value.get(key), list):
                return {name: value[name] for name in (key, "loss_mask") if name in value}
    raise PromptFileError(
        f"{where}: no prompt; the object needs one of prompt, text, turns, messages, prompt_token_ids"
    )
