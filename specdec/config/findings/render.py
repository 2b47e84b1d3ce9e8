"""Diagnostics as text for people, JSON for tools, and annotations for GitHub."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source

FORMAT_VERSION = 1
MAX_SHOWN = 50
_WINDOW = 110  # characters shown of a long source line
_COLOURS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m"}


def render_text(diagnostics: Sequence[Diagnostic], colour: bool = False, limit: int = MAX_SHOWN) -> str:
    """All findings, each as a header, the source line with a caret, and the fix; empty for no findings."""
    shown = [_one(d, colour) for d in diagnostics[:limit]]
    if len(diagnostics) > limit:
        shown.append(f"and {len(diagnostics) - limit} more")
    return "\n".join(shown)


def render_json(diagnostics: Sequence[Diagnostic], files: Sequence[str] = (), limit: int | None = None) -> str:
    """One JSON object; ``format_version`` changes only when a key changes its meaning or goes away."""
    body = {
        "format_version": FORMAT_VERSION,
        "valid": not any(d.severity == "error" for d in diagnostics),
        "error_count": sum(d.severity == "error" for d in diagnostics),
        "warning_count": sum(d.severity == "warning" for d in diagnostics),
        "files": list(files),
        "diagnostics": [to_dict(d) for d in diagnostics[:limit]],
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a finding, so that it is shown at the line in a pull request."""
    return "\n".join(_annotation(d) for d in diagnostics)


def to_dict(diagnostic: Diagnostic) -> dict[str, Any]:
    """A finding as plain data."""
    source = diagnostic.source
    place = None
    if source is not None:
        place = {
            "kind": source.kind,
            "file": source.file,
            "line": source.line,
            "column": source.column,
            "text": None if source.text is None else source.text[:1000],
        }
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "path": diagnostic.path,
        "message": diagnostic.message,
        "fix": diagnostic.fix,
        "source": place,
    }


def quote(value: Any, limit: int = 60) -> str:
    """A value as YAML would show it on one line, shortened."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(quote(item, 20).strip("'") for item in value[:8])
        return f"[{inside}{', ...' if len(value) > 8 else ''}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"'{text}'" if isinstance(value, str) else text


def one_line(text: str) -> str:
    """Text without line breaks and control characters, so that user data cannot steer a terminal."""
    return "".join(c if c.isprintable() else "\\n" if c == "\n" else f"\\x{ord(c):02x}" for c in text)


def _one(d: Diagnostic, colour: bool) -> str:
    where = _where(d)
    label = f"{d.severity}[{d.code}]"
    if colour:
        label = f"{_COLOURS[d.severity]}{label}\x1b[0m"
    lines = [f"{where}: {label}: {one_line(d.message)}" if where else f"{label}: {one_line(d.message)}"]
    source = d.source
    if source is not None and source.text is not None and (source.line is not None or source.kind == "command line"):
        lines += _snippet(source)
    if d.fix:
        lines.append(f"  fix: {one_line(d.fix)}")
    return "\n".join(lines)


def _where(d: Diagnostic) -> str:
    source = d.source
    if source is None:
        return d.path
    if source.file is not None:
        return str(source)
    return (
        "command line" if source.kind == "command line" else f"{source}" if not d.path else f"{d.path} ({source.kind})"
    )


def _snippet(source: Source) -> list[str]:
    text, column = source.text or "", source.column or 1
    start = 0
    if len(text) > _WINDOW:
        start = max(0, min(column - 1 - _WINDOW // 3, len(text) - _WINDOW))
    part = "".join(c if c.isprintable() else " " for c in text[start : start + _WINDOW])
    before, cut = part[: column - 1 - start], "…" if start else ""
    tail = "…" if start + _WINDOW < len(text) else ""
    lines = [f"  | {cut}{part}{tail}".rstrip()]
    if source.column is not None:
        lines.append(
            f"  | {' ' * (_width(before) + len(cut))}{'^' * _caret_length(part[len(before) :], source.kind == 'command line')}"
        )
    return lines


def _caret_length(rest: str, override: bool = False) -> int:
    """How much of the line the caret underlines: the word, or the quoted text, that starts there."""
    if not rest:
        return 1
    if rest[0] in "'\"":
        end = rest.find(rest[0], 1)
        return _width(rest[: end + 1]) if end > 0 else 1
    if rest[0] in "[{":
        return 1
    if override and "=" in rest:  # the caret is under a step of the key
        rest = rest[: rest.index("=")].partition(".")[0]
    length = 0
    for i, char in enumerate(rest):
        if char in ",]}#=" or (char == ":" and rest[i + 1 : i + 2] in ("", " ")) or char == " ":
            break
        length = i + 1
    return max(_width(rest[:length]), 1)


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _annotation(d: Diagnostic) -> str:
    level = {"error": "error", "warning": "warning", "note": "notice"}[d.severity]
    source, place = d.source, []
    if source is not None and source.file is not None:
        place = [("file", source.file), ("line", source.line), ("col", source.column)]
    place.append(("title", f"specdec {d.code}"))
    told = d.message if source is None or source.file is not None else f"{source}: {d.message}"
    message = told + (f"\nfix: {d.fix}" if d.fix else "")
    keys = ",".join(f"{key}={_escape(str(value), True)}" for key, value in place if value is not None)
    return f"::{level} {keys}::{_escape(message)}"


def _escape(text: str, key: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if key else text
