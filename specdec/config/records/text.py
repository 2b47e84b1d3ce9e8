"""A records document: plain data, and where each key stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.read import source as files


@dataclass(frozen=True)
class Text:
    """The values of one records document; ``document`` is None for records given as Python data."""

    name: str
    value: Any
    document: files.Document | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    def source(self, path: Sequence[Any]) -> Source:
        """Where the key at ``path`` stands, or its closest parent."""
        if self.document is None:
            return Source("record", self.name)
        return self.document.source(path, key=True)

    def value_source(self, path: Sequence[Any], offset: int = 0) -> Source:
        """Where the value at ``path`` starts; ``offset`` counts characters into a value that fits on one line."""
        if self.document is None:
            return Source("record", self.name)
        mark = self.document.mark(path)
        line = self.document.line_text(mark.line)
        opener = line[mark.column - 1 : mark.column]
        column = mark.column if opener in "|>" else mark.column + (opener in "'\"") + offset
        return self.document.at(files.Mark(mark.line, column))


def read(path: str | Path) -> Text:
    """Read a records file; raises ``SourceError`` when it is not one readable YAML document."""
    document = files.load(path)
    return Text(document.name, document.data, document, tuple(document.problems))


def parse(text: str, name: str = "<records>") -> Text:
    """Read records from a string."""
    document = files.parse(text, name)
    return Text(name, document.data, document, tuple(document.problems))


def from_value(value: Mapping[str, Any], name: str) -> Text:
    """Records given as Python data: no positions."""
    return Text(name, value)
