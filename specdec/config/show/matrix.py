"""Tables over all records: methods, the compatibility matrix, capability flags, aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specdec.config.language.record import SpeculatorRecord

YES, NO, PARTLY = "yes", "-", "some"
ENGINES = ("embedded", "vllm", "sglang")


def methods(registry: Any) -> str:
    """Name, where it runs, what it needs; a method that is not stable says so."""
    rows: list[tuple[str, ...]] = [("method", *ENGINES, "needs")]
    for record in registry.records.values():
        name = record.name if record.status == "stable" else f"{record.name} ({record.status})"
        rows.append((name, *(engine_cell(record, e) for e in ENGINES), short_needs(record)))
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


def short_needs(record: SpeculatorRecord) -> str:
    """What ``needs`` says, in a column of a terminal."""
    return needs(record).replace(" checkpoint", "").replace("hidden ", "").replace("in the target", "in target")


def features(registry: Any) -> str:
    """The compatibility matrix: engine features against methods, and what the columns mean."""
    names = list(registry.features)
    rows: list[tuple[str, ...]] = [("method", *(registry.features[name].short for name in names))]
    for record in registry.records.values():
        rows.append((record.name, *(feature_cell(record, name) for name in names)))
    width = max(len(registry.features[name].short) for name in names)
    legend = [f"{f.short:<{width}}  {f.title}: {f.summary}" for f in (registry.features[name] for name in names)]
    return "\n".join(
        [
            table(rows),
            "",
            *legend,
            f"{PARTLY:<{width}}  depends on the configuration; 'specdec explain FEATURE' has the reasons",
        ]
    )


def feature_cell(record: SpeculatorRecord, feature: str) -> str:
    """``yes``, ``-``, or ``some`` when it depends on the configuration or the checkpoint."""
    entry = record.compatibility.get(feature)
    if not isinstance(entry, Mapping):
        return YES
    if entry.get("supported", True) is False:
        return NO
    when = str(entry.get("when") or "")
    flag = when.removeprefix("capabilities.")
    if not when:
        return YES
    if flag not in record.capabilities or any(rule.name == flag for rule in record.capability_rules):
        return PARTLY
    return YES if record.capabilities[flag] else NO


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
                "engines": {engine: engine_cell(record, engine) for engine in ENGINES},
                "needs": needs(record),
                "capabilities": dict(record.capabilities),
                "features": {name: feature_cell(record, name) for name in registry.features},
                "limits": {
                    name: entry["reason"]
                    for name, entry in record.compatibility.items()
                    if isinstance(entry, Mapping) and entry.get("reason") and feature_cell(record, name) != YES
                },
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
