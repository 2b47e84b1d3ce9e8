"""Benchmark prompts: ten kinds that ship with the package, or a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from specdec.bench.samples import BenchPrompt
from specdec.errors import RequestError
from specdec.files import TextFileError, read_text

TEXT_KEYS = ("prompt", "text")
KIND_KEYS = ("kind", "category")


class BenchPromptError(ValueError):
    """The prompts cannot be read; the message says where and what is allowed."""


def packaged() -> Path:
    """The file of the ten packaged prompts, one per kind."""
    return Path(str(files("specdec.bench").joinpath("prompts.jsonl")))


def read(paths: Sequence[str | Path], limit: int | None = None) -> list[dict[str, str]]:
    """Objects with ``id``, ``kind`` and ``prompt`` from JSON-lines files; ``limit`` is per file."""
    found: list[dict[str, str]] = []
    for path in paths or [packaged()]:
        try:
            lines = read_text(path).split("\n")
        except TextFileError as error:
            raise BenchPromptError(str(error)) from None
        items = [_item(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
        found += items[:limit]
    if not found:
        raise BenchPromptError("the prompts files are empty; each line holds an object with a prompt")
    return found


def _item(line: str, where: str) -> dict[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BenchPromptError(f'{where}: not JSON; write one object a line, for example {{"prompt": "..."}}') from None
    text: Any = value if isinstance(value, str) else None
    if isinstance(value, dict):
        text = next((value[k] for k in TEXT_KEYS if isinstance(value.get(k), str)), None)
        turns = value.get("turns")
        if text is None and isinstance(turns, list) and turns:
            text = turns[0]
    if not isinstance(text, str) or not text.strip():
        raise BenchPromptError(f"{where}: no prompt; the object needs one of prompt, text, turns (a list of strings)")
    fields = value if isinstance(value, dict) else {}
    kind = next((str(fields[k]) for k in KIND_KEYS if fields.get(k)), "prompt")
    return {"id": str(fields.get("id") or where), "kind": kind, "prompt": text}


def tokenize(items: Sequence[dict[str, str]], tokenizer: Any, raw: bool = False) -> list[BenchPrompt]:
    """Token ids of each prompt, in the chat template when the tokenizer has one."""
    from specdec.engine.chat_template import bounded_templates

    chat = not raw and bool(getattr(tokenizer, "chat_template", None))
    prompts = []
    for item in items:
        text, options = item["prompt"], {}
        if chat:
            messages = [{"role": "user", "content": text}]
            try:
                with bounded_templates():
                    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            except Exception as error:  # templates are programs of the checkpoint and raise what they like
                raise RequestError(f"{item['id']}: the chat template refuses this prompt: {error}") from error
            options = {"add_special_tokens": False}
        prompts.append(BenchPrompt(item["id"], item["kind"], tuple(tokenizer(text, **options)["input_ids"])))
    return prompts
