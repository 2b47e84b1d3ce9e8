"""Rewriting an older specdec file with today's names, in place: comments and layout stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.findings.paths import Step, format_path
from specdec.config.read.source import Document, Mark, SourceError, parse

# root keys that other tools, or drafts of a specdec file, use for the block of the speculator
ROOT_NAMES = {"speculative_config": "speculative", "speculative-config": "speculative", "speculator": "speculative"}
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Edit:
    """Replace ``old`` at a position by ``new``."""

    mark: Mark
    old: str
    new: str


def modernise(document: Document, registry: Any = None) -> tuple[str, list[Diagnostic]]:
    """The file's text with canonical names, and a note for each change; positions must be those of the file."""
    if registry is None:
        from specdec.config.records.registry import builtin

        registry = builtin()
    if not isinstance(document.data, dict):
        message = "the file does not hold a mapping, so there is nothing to migrate"
        return "", [Diagnostic("wrong-type", "error", "", message, "start from: specdec init", document.source(()))]
    edits, notes = [], []
    for path, new, is_key in _renames(document.data, registry):
        old = str(path[-1]) if is_key else str(_value(document.data, path))
        edits.append(Edit(document.mark(path, key=is_key), old, new))
        notes.append(
            Diagnostic(
                "renamed-field",
                "note",
                format_path(path),
                f"{old} is now {new}",
                None,
                document.source(path, key=is_key),
            )
        )
    text = _apply(document.lines, edits)
    if "schema_version" not in document.data:
        text = _with_version(text)
        message = f"added schema_version: {SCHEMA_VERSION}"
        notes.append(Diagnostic("renamed-field", "note", "schema_version", message, None, document.source(())))
    try:
        parse(text, document.name)
    except SourceError as error:
        return "", [error.diagnostic]
    return text, notes


def _renames(data: dict[str, Any], registry: Any) -> Iterator[tuple[tuple[Step, ...], str, bool]]:
    """(path, new name, whether the key changes rather than the value)."""
    for key, block in data.items():
        root = ROOT_NAMES.get(key, key)
        if root != key:
            yield (key,), root, True
        if root != "speculative":
            continue
        blocks = [((key, i), b) for i, b in enumerate(block)] if isinstance(block, list) else [((key,), block)]
        for path, one in blocks:
            if isinstance(one, dict):
                yield from _block_renames(path, one, registry)


def _block_renames(
    path: tuple[Step, ...], block: dict[str, Any], registry: Any
) -> Iterator[tuple[tuple[Step, ...], str, bool]]:
    name = block.get("method")
    if not isinstance(name, str):
        return
    try:
        record, alias = registry.resolve_name(name)
    except KeyError:
        return
    if alias is not None:
        yield (*path, "method"), record.name, False
    spellings = {old: option.name for option in record.options.values() for old in option.aliases}
    for key in block:
        new = spellings.get(key)
        if new is not None and new not in block:
            yield (*path, key), new, True


def _value(data: Any, path: tuple[Step, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def _apply(lines: list[str], edits: list[Edit]) -> str:
    """Apply edits from the end, so that earlier positions stay right."""
    result = list(lines)
    for edit in sorted(edits, key=lambda e: e.mark, reverse=True):
        line = result[edit.mark.line - 1]
        start = line.find(edit.old, edit.mark.column - 1)
        if start >= 0:
            result[edit.mark.line - 1] = line[:start] + edit.new + line[start + len(edit.old) :]
    return "\n".join(result).rstrip("\n") + "\n"


def _with_version(text: str) -> str:
    """``schema_version`` after the leading comments; flow-style (JSON) files get it inside the braces."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("#", "---"))), 0)
    if lines[first].lstrip().startswith("{"):
        lines[first] = lines[first].replace("{", f'{{"schema_version": {SCHEMA_VERSION}, ', 1)
    else:
        lines.insert(first, f"schema_version: {SCHEMA_VERSION}")
    return "\n".join(lines)
