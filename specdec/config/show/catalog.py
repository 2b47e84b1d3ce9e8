"""What each diagnostic code means: one catalog for ``explain`` and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One code: what it means, an example that has it, and what to do."""

    code: str
    title: str
    explanation: str
    fix: str
    example: str = ""
    group: str = ""


@lru_cache(maxsize=1)
def catalog() -> dict[str, Entry]:
    """Code -> entry, in the order of the docs."""
    from specdec.config.read.source import load

    entries: dict[str, Entry] = {}
    for group, codes in load(Path(__file__).with_name("catalog.yaml")).data.items():
        for code, raw in codes.items():
            entries[code] = Entry(
                code,
                raw["title"],
                raw["explanation"].strip(),
                raw["fix"].strip(),
                raw.get("example", "").rstrip(),
                group,
            )
    return entries
