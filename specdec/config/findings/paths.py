"""Dotted paths into a configuration: ``speculative.tree.topk``, ``speculative[1].method``."""

from __future__ import annotations

import re
from collections.abc import Sequence

Step = str | int


def format_path(path: Sequence[Step]) -> str:
    """``("speculative", 1, "method")`` as ``speculative[1].method``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a dotted path; the inverse of ``format_path`` for keys without dots or brackets."""
    return tuple(int(step[1:-1]) if step.startswith("[") else step for step in re.findall(r"\[\d+\]|[^.\[\]]+", text))
