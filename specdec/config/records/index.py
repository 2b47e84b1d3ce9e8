"""The built-in records as JSON: their values, and where their keys stand, without parsing YAML (40 ms) at each start.

The index is generated from ``speculators.yaml`` and ``sections.yaml``, and used only while they are what it was made from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Source
from specdec.config.read import source as files
from specdec.config.records.data_files import data_file, made_from
from specdec.config.records.text import Text, read

FILE = Path(__file__).with_name("speculators.json")
RECORDS = "speculators.yaml"
_DEPTH = 6  # keys below are found by reading the YAML


@dataclass(frozen=True)
class IndexedText(Text):
    """Records from the index; the YAML is read for a place that the index does not have."""

    marks: Any = field(default=None, repr=False)

    def source(self, path: Sequence[Any]) -> Source:
        """Where the key at ``path`` stands, or its closest parent."""
        line, column, inner = 0, 0, self.marks
        for step in path:
            known = step in inner if isinstance(inner, dict) else isinstance(inner, list) and step < len(inner)
            if not known:
                return self.parsed.source(path)
            lines_further, column, *below = inner[step]
            line += lines_further
            inner = below[0] if below else None
        if not path:
            return self.parsed.source(path)
        return Source("file", self.name, line, column, self.lines[line - 1])

    def value_source(self, path: Sequence[Any], offset: int = 0) -> Source:
        """Where the value at ``path`` starts, ``offset`` characters into it."""
        return self.parsed.value_source(path, offset)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the YAML file."""
        return files.split_lines(Path(self.name).read_text(encoding="utf-8-sig"))

    @cached_property
    def parsed(self) -> Text:
        """The YAML file itself."""
        return read(self.name)


def read_indexed() -> Text | None:
    """The built-in records from the index, or None when it was made from another ``speculators.yaml``."""
    index = _index()
    return IndexedText(str(data_file(RECORDS)), index["value"], marks=index["marks"]) if index else None


def sections_file() -> Any:
    """The content of ``sections.yaml``."""
    index = _index()
    return index["sections"] if index else files.load(Path(__file__).with_name("sections.yaml")).data


@lru_cache(maxsize=1)
def _index() -> dict[str, Any]:
    """The index, empty when it cannot be used."""
    try:
        index = json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    usable = isinstance(index, dict) and all(index.get(key) == value for key, value in _head().items())
    return index if usable else {}


def _head() -> dict[str, Any]:
    return {"format": 2, "made_from": made_from()}


def index_text() -> str:
    """The index as it is kept in the package: one line a record, so that differences can be read."""
    text = read(data_file(RECORDS))
    assert text.document is not None
    marks = _marks(text.document, text.value, (), 0)
    sections = files.load(Path(__file__).with_name("sections.yaml")).data
    return _lines({**_head(), "sections": sections, "value": text.value, "marks": marks}, 3) + "\n"


def _marks(document: files.Document, value: Any, path: tuple[Any, ...], above: int) -> Any:
    """Key -> [lines after its parent's, column, what is inside]: few numbers change when a record grows."""
    if len(path) == _DEPTH or not isinstance(value, (dict, list)) or not value:
        return None
    found = []
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
        mark = document.mark((*path, step), key=True)
        below = _marks(document, inner, (*path, step), mark.line)
        found.append([mark.line - above, mark.column, *([below] if below else [])])
    return dict(zip(value, found, strict=True)) if isinstance(value, dict) else found


def _lines(value: Any, levels: int) -> str:
    if not levels or not isinstance(value, Mapping):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(key)}:{_lines(inner, levels - 1)}" for key, inner in value.items()) + "\n}"
