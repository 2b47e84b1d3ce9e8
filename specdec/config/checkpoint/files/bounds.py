"""What any file of a checkpoint may hold, checked once at the door: numbers, texts, nesting and amounts within reason."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

from specdec.config.checkpoint.files.errors import CheckpointFault

MAX_DEPTH = 40  # real files nest four or five levels
MAX_VALUES = 50_000  # of a config.json; the largest known has a few thousand
MAX_TENSORS = 1_000_000
MAX_NAME = 1_000  # characters of a key or a tensor name
MAX_TEXT = 100_000  # characters of one text
MAX_DIMS = 16
INT64 = 2**63


def regular_file(path: Path) -> None:
    """Raise CheckpointFault for what is there but is no file: a pipe or a device would wait for ever."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # opening it says what is wrong
    if not stat.S_ISREG(mode):
        raise CheckpointFault(f"{path.name} is no regular file", fix="give a file, not a pipe, a device or a directory")


def short(value: Any, limit: int = 60) -> str:
    """A value in a message, shortened; long integers are counted instead of written."""
    if isinstance(value, int) and abs(value) >= INT64:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def bounded(value: Any, where: str, max_values: int = MAX_VALUES) -> None:
    """Raise CheckpointFault for the first part of a parsed file that no checkpoint holds; ``where`` names the file."""
    left = max_values
    stack: list[tuple[Any, str, int]] = [(value, "", 0)]
    while stack:
        part, path, depth = stack.pop()
        left -= 1
        if left < 0:
            raise CheckpointFault(f"{where} holds more than {max_values} values; no checkpoint has so many")
        if problem := _problem(part, depth):
            raise CheckpointFault(f"{where}: {_tail(path) or 'the file'} {problem}")
        if isinstance(part, dict):
            for key, inner in part.items():
                if len(str(key)) > MAX_NAME or is_broken(str(key)):
                    raise CheckpointFault(f"{where}: the key {short(key)} is too long or holds half a character")
                stack.append((inner, f"{path}.{key}" if path else str(key), depth + 1))
        elif isinstance(part, (list, tuple)):
            stack.extend((inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(part[: max_values + 1]))


def _tail(path: str) -> str:
    return path if len(path) <= 80 else f"{path[:40]}...{path[-30:]}"


def _problem(value: Any, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if isinstance(value, bool):
        return None
    if isinstance(value, int) and not -INT64 <= value < INT64:
        return f"is {short(value)}, which does not fit in 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which is no finite number"
    if isinstance(value, str) and (len(value) > MAX_TEXT or is_broken(value)):
        return "is a text that is too long or holds half a character"
    return None


def is_broken(text: str) -> bool:
    """Whether a text holds half a character (a lone surrogate), which no encoding can write."""
    return not text.isascii() and any(0xD800 <= ord(c) < 0xE000 for c in text)
