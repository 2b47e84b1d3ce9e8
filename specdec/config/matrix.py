"""Tables over all records: methods, the compatibility matrix, capability flags, aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.config.record_types import SpeculatorRecord

YES, NO, PARTLY = "yes", "-", "partly"


def methods(registry: Any) -> str:
    """Name, title, status, where it runs, whether it needs a draft checkpoint."""
    rows = [("method", "title", "status", "embedded", "vllm", "sglang", "needs")]
    for record in registry.records.values():
        rows.append(
            (
                record.name,
                record.title,
                record.status,
                *(engine_cell(record, e) for e in ("embedded", "vllm", "sglang")),
                needs(record),
            )
        )
    return table(rows)


def engine_cell(record: SpeculatorRecord, engine: str) -> str:
    """``yes``, ``planned``, the engine's own name with its first version, or ``-``."""
    entry = record.engines.get(engine)
    if isinstance(entry, Mapping):
        name = str(entry.get("method") or entry.get("algorithm") or NO)
        since = f" {entry['since']}+" if entry.get("since") else ""
        return name + since + (f" until {entry['until']}" if entry.get("until") else "")
    return YES if entry is True else NO if entry in (None, False) else str(entry)


def needs(record: SpeculatorRecord) -> str:
    """What must be there besides the target."""
    model = record.options.get("model")
    flags = record.capabilities
    parts = []
    if model is not None and model.required:
        parts.append("draft checkpoint")
    elif flags.get("draft_defaults_to_target"):
        parts.append("heads in the target")
    if flags.get("uses_aux_hidden_states"):
        parts.append("aux hidden states")
    elif flags.get("uses_target_hidden_states"):
        parts.append("hidden states")
    return ", ".join(parts) or "nothing"


def features(registry: Any) -> str:
    """The compatibility matrix: engine features against methods."""
    names = list(registry.features)
    rows: list[tuple[str, ...]] = [("method", *names)]
    for record in registry.records.values():
        rows.append((record.name, *(feature_cell(record, name) for name in names)))
    legend = "\n".join(f"{name}: {registry.features[name].title}" for name in names)
    return f"{table(rows)}\n\n{legend}"


def feature_cell(record: SpeculatorRecord, feature: str) -> str:
    """``yes``, ``-``, or ``partly`` when it depends on options."""
    entry = record.compatibility.get(feature)
    if not isinstance(entry, Mapping):
        return YES if entry in (None, True, YES) else NO
    supported = entry.get("supported", True)
    if supported in (False, "no"):
        return PARTLY if entry.get("when") else NO
    return YES if supported in (True, YES) else str(supported)


def capabilities(registry: Any) -> str:
    """Capability flags as rows, methods as columns of marks."""
    records = list(registry.records.values())
    names = list(dict.fromkeys(name for record in records for name in record.capabilities))
    rows: list[tuple[str, ...]] = [("capability", "on for")]
    rows += [(name, ", ".join(r.name for r in records if r.capabilities.get(name)) or NO) for name in names]
    return table(rows)


def aliases(registry: Any) -> str:
    """Other names of each method; deprecated ones say so."""
    rows: list[tuple[str, ...]] = [("name", "method", "note")]
    for record in registry.records.values():
        rows += [(a.name, record.name, a.note or ("deprecated" if a.deprecated else "")) for a in record.aliases]
    return table(rows)


def as_dict(registry: Any) -> dict[str, Any]:
    """Everything the tables show, as versioned data."""
    return {
        "format": "specdec/list/1",
        "methods": [
            {
                "name": record.name,
                "title": record.title,
                "summary": record.summary,
                "status": record.status,
                "since": record.since,
                "guarantee": record.guarantee,
                "engines": {engine: engine_cell(record, engine) for engine in ("embedded", "vllm", "sglang")},
                "needs": needs(record),
                "capabilities": dict(record.capabilities),
                "features": {name: feature_cell(record, name) for name in registry.features},
                "aliases": [alias.name for alias in record.aliases],
                "origin": record.origin,
            }
            for record in registry.records.values()
        ],
    }


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, header first."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
