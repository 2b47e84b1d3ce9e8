"""Checking a configuration against the JSON Schema, with every finding at its place in the file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.read.source import Document
from specdec.config.read.validator import Violation, violations
from specdec.config.records.announced import packages_may_bring_records
from specdec.config.schema.known import Known
from specdec.config.schema.messages import explain, unknown_key

Locate = Callable[[tuple[Step, ...], bool], Source | None]  # (path, whether the key is meant) -> place
RECORD_KEYS = ("speculators", "option_sets", "targets")  # a file with one of these at its root holds records


MAX_SUGGESTIONS = 100  # unknown keys of one mapping that are looked up; further ones are only named


class Checker:
    """A schema, ready to check many configurations."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.known = Known(schema)

    def check(
        self, data: Any, locate: Locate | None = None, *, partial: bool = False, skip: Collection[str] = ()
    ) -> list[Diagnostic]:
        """Every finding in ``data``, in the order of the file.

        ``partial``: more values are still to come, so absent keys and old spellings are left to the resolver.
        ``skip``: dotted paths that already have a finding.
        """
        place = locate or (lambda path, key: None)
        found: dict[tuple[str, str], Diagnostic] = {}
        data = self.known.with_whole_numbers(self.known.with_known_methods(data))
        for error in violations(self.schema, data, self.schema):
            for diagnostic in self._diagnose(error, data, place, partial):
                if not any(diagnostic.path == s for s in skip):
                    found.setdefault((diagnostic.code, diagnostic.path), diagnostic)
        mistyped = {path for code, path in found if code == "wrong-type"}
        found = {at: d for at, d in found.items() if at[0] == "wrong-type" or at[1] not in mistyped}
        if not partial:
            for diagnostic in self._old_spellings(data, place):
                found.setdefault((diagnostic.code, diagnostic.path), diagnostic)
        return sorted(found.values(), key=_position)

    def _diagnose(self, error: Violation, data: Any, place: Locate, partial: bool) -> Iterator[Diagnostic]:
        path = error.path
        suggestions = MAX_SUGGESTIONS
        if error.keyword == "additionalProperties":
            allowed = error.schema.get("properties", {})
            for key in error.value:
                if key not in allowed:
                    full = (*path, key)
                    source = place(full, True)
                    message, fix = f"'{key}' is not a key of '{format_path(path)}'", None
                    if suggestions > 0:
                        message, fix = unknown_key(self.known, data, path, str(key), list(allowed), source)
                        suggestions -= 1
                    yield Diagnostic("unknown-key", "error", format_path(full), message, fix, source)
        elif error.keyword == "required":
            for key in () if partial else error.wanted:
                if key not in error.value:
                    owner = self.known.method_at(data, path)
                    message = f"{owner} needs '{key}'" if owner else f"'{key}' is missing"
                    source = place((*path, "method") if owner else path, True)
                    fix = self.known.how_to_write(key, owner)
                    yield Diagnostic("missing-required", "error", format_path((*path, key)), message, fix, source)
        else:
            yield explain(self.known, error, place(path, False))

    def _old_spellings(self, data: Any, place: Locate) -> Iterator[Diagnostic]:
        for path, block in self.known.speculative_blocks(data):
            method = block.get("method")
            if isinstance(method, str) and method in self.known.deprecated_methods:
                canonical = self.known.canonical_method(method)
                message = f"'{method}' is an old name of {canonical}{self.known.deprecated_methods[method]}"
                at = (*path, "method")
                fix = f"write {canonical}"
                yield Diagnostic("deprecated-alias", "warning", format_path(at), message, fix, place(at, False))
            for key in block:
                canonical_key = self.known.renamed_option(method, key)
                if canonical_key:
                    at = (*path, key)
                    message = f"'{key}' is another spelling of '{canonical_key}'"
                    fix = f"write '{canonical_key}'"
                    yield Diagnostic("renamed-option", "warning", format_path(at), message, fix, place(at, True))


def check_document(document: Document, checker: Checker | None = None) -> list[Diagnostic]:
    """The faults found while reading a file together with what the schema says about it."""
    paths = {d.path for d in document.problems}
    found = (checker or shipped_checker()).check(document.data, document.source, skip=paths)
    return sorted([*document.problems, *found], key=_position)


def is_records_file(data: Any) -> bool:
    """Whether a file holds records rather than a configuration."""
    return isinstance(data, dict) and any(key in data for key in RECORD_KEYS)


@lru_cache(maxsize=1)
def shipped_checker() -> Checker:
    """The checker of the built-in speculators; reads the shipped JSON Schema, and the records only when they were edited."""
    from specdec.config.records.data_files import made_from, schema_path

    schema = json.loads(schema_path("config.schema.json").read_text(encoding="utf-8"))
    if schema.get("x-specdec") == {"made_from": made_from()}:
        return Checker(schema)
    from specdec.config.records.registry import builtin

    return checker_of(builtin())


def checker_for(data: Any, folder: Path | None = None) -> tuple[Checker, list[Diagnostic]]:
    """The checker that knows every method ``data`` names, and what was wrong with the records it brings.

    The shipped schema when that is enough, else one built from the records of installed packages and of ``records:``
    (relative to ``folder``).
    """
    shipped = shipped_checker()
    if not shipped.known.needs_other_records(data) or not _other_records(data):
        return shipped, []
    registry, problems = records_for(data, folder)
    return checker_of(registry), problems


def records_for(data: Any, folder: Path | None = None) -> tuple[Any, list[Diagnostic]]:
    """The registry with the records of installed packages and of the files that ``records:`` names."""
    from specdec.config.read.source import SourceError
    from specdec.config.records.extends import RecordError
    from specdec.config.records.registry import installed_problems

    registry = all_records()
    problems: list[Diagnostic] = list(installed_problems())
    files = data.get("records") if isinstance(data, dict) else None
    for file in files if isinstance(files, list) else ():
        if isinstance(file, str):
            try:
                registry = registry.with_file((folder or Path()) / file)
            except RecordError as error:
                found = Diagnostic(error.code, "error", "records", error.message, error.fix, error.source)
                problems.append(found if _holds_records((folder or Path()) / file) else _no_records(file))
            except SourceError as error:
                # what cannot be read as records may be any file, whose lines are nobody's business
                source = error.diagnostic.source
                unquoted = replace(source, text=None) if source is not None else None
                problems.append(replace(error.diagnostic, source=unquoted))
    return registry, problems


def _holds_records(file: Path) -> bool:
    from specdec.config.read.source import SourceError, load

    try:
        return is_records_file(load(file).data)
    except SourceError:
        return False


def _no_records(file: str) -> Diagnostic:
    message = f"'{file[:200]}' holds no records: none of {', '.join(RECORD_KEYS)} stands at its top"
    return Diagnostic("wrong-value", "error", "records", message, "name a file of records")


def _other_records(data: Any) -> bool:
    """Whether records beyond the built-in ones can be in play: of the file, of this process, of installed packages."""
    if isinstance(data, dict) and data.get("records"):
        return True
    registry = sys.modules.get("specdec.config.records.registry")
    if registry is not None and registry.current() is not registry.builtin():
        return True
    return packages_may_bring_records()


def all_records() -> Any:
    """The built-in records and those of installed packages."""
    from specdec.config.records.registry import installed

    return installed()


_BUILT: list[tuple[Any, Checker]] = []  # (registry, checker) of the last few registries


def checker_of(registry: Any) -> Checker:
    """The checker of a registry; the last few are kept."""
    for known, checker in _BUILT:
        if known is registry:
            return checker
    from specdec.config.schema.build import build_schema

    checker = Checker(build_schema(registry))
    _BUILT[:] = [(registry, checker), *_BUILT[:3]]
    return checker


def unique(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings without repeats of the same code at the same place; what is wrong with rules is told rule by rule."""
    seen: dict[tuple[str, str, str], Diagnostic] = {}
    for d in diagnostics:
        by_place = not d.path or d.code == "record-expression"
        seen.setdefault((d.code, d.path, f"{d.source}{d.message}" if by_place else ""), d)
    return list(seen.values())


def _position(d: Diagnostic) -> tuple[bool, int, int, str]:
    source = d.source
    return (
        source is None or source.file is None,
        (source and source.line) or 0,
        (source and source.column) or 0,
        d.path,
    )
