"""Findings about a configuration, and where each value came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SourceKind = Literal["file", "command line", "api", "checkpoint", "record", "environment"]

# faults that keep a file from being checked at all: one line, exit code 2
COULD_NOT_RUN = frozenset(
    {
        "alias-bomb",
        "cannot-read",
        "empty-file",
        "file-not-found",
        "file-too-large",
        "is-a-directory",
        "multiple-documents",
        "not-utf-8",
        "too-deep",
    }
)


@dataclass(frozen=True)
class Source:
    """A place a person can go to: a file position, an override text, or a checkpoint key."""

    kind: SourceKind
    file: str | None = None
    line: int | None = None  # 1-based
    column: int | None = None  # 1-based
    text: str | None = None  # the override, or the source line

    def __str__(self) -> str:
        if self.file is not None:
            place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
            return place
        return f"{self.kind}: {self.text}" if self.text else self.kind


@dataclass(frozen=True)
class Diagnostic:
    """One finding; ``path`` is dotted from the root of the user's file, ``draft.``/``target.`` for checkpoint keys."""

    code: str
    severity: Severity
    path: str
    message: str
    fix: str | None = None
    source: Source | None = None


OriginKind = Literal["command line", "user", "checkpoint", "record", "target", "engine", "derived"]


@dataclass(frozen=True)
class Origin:
    """Where a final value came from, and the values it beat.

    ``kind`` user: the user's file or dict; checkpoint: a draft ``config.json`` key or tensor (``detail`` names it);
    record: a record default; target: inherited from the target; derived: computed (``inputs`` name what from).
    """

    kind: OriginKind
    detail: str = ""
    source: Source | None = None
    inputs: tuple[str, ...] = ()
    over: tuple[tuple[Origin, Any], ...] = ()  # (origin, value) pairs this one beat, strongest first


@dataclass(frozen=True)
class Found:
    """A value together with its origin, on its way to the finalized config."""

    value: Any
    origin: Origin = field(default_factory=lambda: Origin("derived"))


class ConfigError(ValueError):
    """Raised by ``Resolution.unwrap()``; carries every diagnostic."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        errors = [d for d in diagnostics if d.severity == "error"]
        super().__init__(
            "\n".join(f"{d.path}: error[{d.code}]: {d.message}" for d in errors) or "invalid configuration"
        )
