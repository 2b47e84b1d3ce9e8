"""Whether a version of an engine knows the name that a setting has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.config.export.tables import parse_version, tables
from specdec.config.findings.suggest import nearest


def known_values(engine: str, kind: str, version: str | None) -> list[str] | None:
    """The names that a version of the engine takes for a setting; None where any text may do."""
    table = tables()[engine]
    entry: Mapping[str, Any] | None = table.get("values", {}).get(kind)
    if entry is None:
        return None
    wanted = parse_version(version or table["tested"]) or (parse_version(table["tested"]) or ())
    names = list(entry["names"])
    for first, added in entry.get("since", {}).items():
        names += added if wanted >= (parse_version(first) or ()) else []
    for first, dropped in entry.get("before", {}).items():
        names += dropped if wanted < (parse_version(first) or ()) else []
    return names


def unknown_value(engine: str, kind: str, value: Any, version: str | None) -> tuple[str, str] | None:
    """What is wrong with a name that the engine does not take, and what to do; None where it takes it."""
    known = known_values(engine, kind, version) if isinstance(value, str) else None
    if known is None:
        return None
    table = tables()[engine]
    fold = str.upper if table["values"][kind].get("any_case") else str
    if fold(value) in map(fold, known):
        return None
    title, near = table["title"], nearest(value, known)
    fix = f"did you mean {near}?" if near else f"one of: {', '.join(known[:8])}, ..."
    return f"{title} {version or table['tested']} has no {kind} named {value!r}", fix
