"""The values of ``target:``, ``engine:`` and ``sampling:``, each with its origin; shared fields have one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Found, Origin, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.merge.ranks import Candidate, strongest
from specdec.config.read.inputs import API, at_path, shown
from specdec.config.records.sections import section_fields, shared_fields
from specdec.config.schema.compose import Composed

DEFAULT = "default"


@dataclass(frozen=True)
class Settings:
    """Field -> found value; fields without a value are absent."""

    target: Mapping[str, Found]
    engine: Mapping[str, Found]
    sampling: Mapping[str, Found]
    diagnostics: tuple[Diagnostic, ...] = ()

    def value(self, section: str, name: str) -> Any:
        """The value of a field, or None."""
        found = getattr(self, section).get(name)
        return found.value if found else None


def written(composed: Composed, path: tuple[Step, ...]) -> list[Candidate]:
    """What was written at a path, strongest first: the override, then the file."""
    merged, user = at_path(composed.data, path), at_path(composed.user, path)
    override = composed.command_line(path)
    if override is None:
        return [] if merged is None else [(user_origin(composed, path), merged)]
    found: list[Candidate] = [] if merged is None else [(Origin("command line", format_path(path), override), merged)]
    if user is not None and merged is not None:
        found.append((user_origin(composed, path), user))
    return found


def user_origin(composed: Composed, path: tuple[Step, ...]) -> Origin:
    """The origin of what the user's file or dict says at a path."""
    source: Source | None = composed.locate_user(path, False)
    return Origin("user", format_path(path), source or API)


def read_settings(composed: Composed, defaults: Sequence[tuple[Origin, Mapping[str, Any]]] = ()) -> Settings:
    """Command line, then file, then ``defaults`` (strongest first; ``engine.<name>`` -> value), then the field's own default."""
    shared = shared_fields()
    findings: list[Diagnostic] = []
    sections: dict[str, dict[str, Found]] = {"target": {}, "engine": {}, "sampling": {}}
    for section, fields in section_fields().items():
        for name, spec in fields.items():
            places: tuple[str, ...] = ("engine", "target") if name in shared and section != "sampling" else (section,)
            if len(places) == 2 and section == "target":
                continue  # read once, under engine
            candidates, conflict = _ranked(composed, places, name)
            findings += conflict
            for place in places:
                candidates += [(origin, d[f"{place}.{name}"]) for origin, d in defaults if f"{place}.{name}" in d]
            candidates.append((Origin("engine", DEFAULT), spec.default))
            found = strongest(candidates)
            if found is not None:
                for place in places:
                    sections[place][name] = found
    return Settings(**sections, diagnostics=tuple(findings))


def _ranked(composed: Composed, places: Sequence[str], name: str) -> tuple[list[Candidate], list[Diagnostic]]:
    """What was written in all places, strongest first; two different values of one rank are a conflict."""
    found = [c for place in places for c in written(composed, (place, name))]
    found.sort(key=lambda candidate: candidate[0].kind != "command line")
    findings = []
    for (one, a), (other, b) in pairwise(found):
        if one.kind == other.kind and a != b:
            message = f"{one.detail} is {shown(a)} and {other.detail} is {shown(b)}; they are one value"
            findings.append(
                Diagnostic("conflicting-values", "error", one.detail, message, f"remove {other.detail}", one.source)
            )
    return found, findings
