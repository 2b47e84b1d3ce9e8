"""The tables of other engines, and which of their versions an entry is about."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from specdec.config.read.source import load


@lru_cache(maxsize=1)
def tables() -> Mapping[str, Any]:
    """Flag tables by engine."""
    data: Mapping[str, Any] = load(Path(__file__).with_name("flags.yaml")).data
    return data


def parse_version(text: str) -> tuple[int, ...] | None:
    """``0.33.0`` as (0, 33): the parts that the tables know; None for something else."""
    parts = text.lstrip("v").split(".")[:2]
    return tuple(int(part) for part in parts) if parts and all(part.isdigit() for part in parts) else None


def in_range(version: tuple[int, ...], entry: Mapping[str, Any]) -> bool:
    """Whether a version is one that an entry with ``since`` and ``before`` is about; both may be absent."""
    since, before = (parse_version(str(entry[name])) if name in entry else None for name in ("since", "before"))
    return (since is None or version >= since) and (before is None or version < before)
