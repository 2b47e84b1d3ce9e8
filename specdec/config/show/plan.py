"""What a finalized configuration means, as data: sections of rows, each with its value, its origin and what it beat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.config.final.speculative_config import Resolution, SpeculativeConfig, plain
from specdec.config.findings.diagnostics import Diagnostic, Origin
from specdec.config.show.plan_sides import SideRow, sides

FORMAT = "specdec/plan/1"
UNSET: tuple[Any, ...] = (None, (), {}, "")
SETTINGS = ("target", "engine")  # mostly defaults and dimensions: only what somebody chose is shown
# always shown
MEMORY = (
    "target_weight_bytes", "draft_weight_bytes", "draft_kv_bytes_per_token", "draft_logits_bytes",
    "draft_pass_bytes", "draft_round_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One value: where it stands, what it is, who said so, and which values it beat."""

    path: str
    value: Any
    origin: Origin | None
    unit: str = ""

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"path": self.path, "value": plain(self.value)}
        if self.origin is not None:
            data["origin"] = origin_dict(self.origin)
        if self.unit:
            data["unit"] = self.unit
        return data


@dataclass(frozen=True)
class Plan:
    """A plan ready to print: the head line, sections of rows, engine changes and findings."""

    config: SpeculativeConfig
    sections: tuple[tuple[str, tuple[Row, ...]], ...]
    diagnostics: tuple[Diagnostic, ...]
    sides: tuple[SideRow, ...] = ()
    members: tuple[Plan, ...] = ()  # of a chain, in order of priority

    @property
    def lossless(self) -> bool:
        return bool(self.config.verification.get("guarantee", self.config.record.guarantee) == "lossless")

    def to_dict(self) -> dict[str, Any]:
        """Versioned plain data for YAML and JSON."""
        config, record = self.config, self.config.record
        return {
            "format": FORMAT,
            "method": config.method,
            "title": record.title,
            "status": record.status,
            "lossless": self.lossless,
            "num_speculative_tokens": config.num_speculative_tokens,
            "engines": plain(record.engines),
            "capabilities": dict(config.capabilities),
            "sections": {title: [row.to_dict() for row in rows] for title, rows in self.sections},
            "inheritance": [_side_dict(row) for row in self.sides],
            **({"members": [member.to_dict() for member in self.members]} if self.members else {}),
            "changes": [plain(change) for change in config.changes],
            "diagnostics": [
                {"code": d.code, "severity": d.severity, "path": d.path, "message": d.message, "fix": d.fix}
                for d in self.diagnostics
            ],
            "config_hash": config.config_hash,
            "config": plain(config.source),
        }


def make_plan(resolution: Resolution, everything: bool = False) -> Plan:
    """The plan of a resolution without errors; ``everything`` also shows values that nobody set."""
    config = resolution.unwrap()
    findings = (*(resolution.diagnostics or config.warnings), *_not_embedded(config))
    return _plan(config, findings, everything)


def _not_embedded(config: SpeculativeConfig) -> Iterator[Diagnostic]:
    """What the embedded engine refuses or ignores: no fault of a plan, which may be for another engine."""
    from specdec.config.final.embedded_refusals import embedded_findings  # which reads plans

    if config.record.engines.get("embedded") in (True, "yes"):
        yield from (replace(finding, severity="warning") for finding in embedded_findings(config))


def _plan(
    config: SpeculativeConfig, findings: tuple[Diagnostic, ...], everything: bool, label: str = "speculative"
) -> Plan:
    both = tuple(row for row in sides(config) if everything or row.matters)
    sections = []
    for title, rows in (
        ("speculative", _speculative(config, everything, label)),
        ("draft", _draft(config, {row.path for row in both}, everything)),
        ("target", _group(config, "target", everything)),
        ("wiring", _group(config, "wiring", everything)),
        ("verification", _verification(config, everything)),
        ("engine", _group(config, "engine", everything)),
        ("numbers", _numbers(config, everything)),
        ("resources", _resources(config, everything)),
    ):
        kept = tuple(rows)
        if kept:
            sections.append((title, kept))
    members = tuple(_plan(m, (), everything, f"speculative[{i}]") for i, m in enumerate(config.members))
    return Plan(config, tuple(sections), findings, both, members)


def _speculative(config: SpeculativeConfig, everything: bool, label: str) -> Iterator[Row]:
    """The method, k, and the options; without ``everything``, no option that is unset."""
    origins = config.provenance
    for name, value in (("method", config.method), ("num_speculative_tokens", config.num_speculative_tokens)):
        unit = "drafted tokens a round" if name != "method" else ""
        yield Row(f"speculative.{name}", value, _first(origins, f"{label}.{name}", f"speculative.{name}"), unit)
    for name, value in config.options.items():
        if name in ("method", "num_speculative_tokens") or (not everything and (value in UNSET or config.members)):
            continue
        option = config.record.options.get(name)
        origin = _first(origins, f"{label}.{name}", f"speculative.{name}")
        if not everything and not _matters(config, name, origin):
            continue
        yield Row(f"speculative.{name}", value, origin, (option.unit or "") if option else "")


def _first(origins: Mapping[str, Origin], *paths: str) -> Origin | None:
    return next((origins[path] for path in paths if path in origins), None)


def _matters(config: SpeculativeConfig, name: str, origin: Origin | None) -> bool:
    """Whether an option says something here; parameters at their default of another verification mode do not."""
    option = config.record.options.get("rejection_sample_method")
    others = (
        [str(mode) for mode in (option.enum or ()) if mode != config.verification.get(option.name)] if option else []
    )
    default = origin is None or origin.kind == "record"
    return not (default and any(name.startswith(f"{mode}_") for mode in others))


def _draft(config: SpeculativeConfig, shown: set[str], everything: bool) -> Iterator[Row]:
    """What is particular to the draft; without ``everything``, neither dimensions that every model has nor side-by-side rows."""
    rows = list(_group(config, "draft", everything))
    last = {
        (str(row.value), row.origin.detail if row.origin else row.path): row.path for row in rows
    }  # one key, two facts
    for row in rows:
        name = row.path.split(".")[1]
        if not everything and last[str(row.value), row.origin.detail if row.origin else row.path] != row.path:
            continue
        dimension = name in config.target and name != "model"
        if everything or not (row.path in shown or dimension or row.value is False):
            yield row


def _verification(config: SpeculativeConfig, everything: bool) -> Iterator[Row]:
    """The guarantee, and values that are not the option of the same name."""
    for row in _group(config, "verification", everything):
        if everything or row.value != config.options.get(row.path.split(".")[1]):
            yield row


def _numbers(config: SpeculativeConfig, everything: bool) -> Iterator[Row]:
    """What the speculator owes the engine; zeros are left out without ``everything``."""
    yield from (row for row in _group(config, "numbers", everything) if everything or row.value != 0)


def _resources(config: SpeculativeConfig, everything: bool) -> Iterator[Row]:
    """Memory of the draft's weights, KV and logits and what drafting reads, also where it is not known."""
    for path, value in flatten(config.resources, "resources"):
        if everything or value not in UNSET or path.split(".")[1] in MEMORY:
            yield Row(path, value, config.provenance.get(path))


def _group(config: SpeculativeConfig, group: str, everything: bool) -> Iterator[Row]:
    """Rows of one part; without ``everything``, neither defaults of target and engine nor the target's dimensions."""
    for path, value in flatten(getattr(config, group), group):
        origin = config.provenance.get(path)
        name = path.split(".")[1]
        if not everything:
            shared = group == "engine" and name in config.target  # shown under target
            default = group == "draft" and origin is not None and origin.kind == "record"
            if value in UNSET or shared or default or (group in SETTINGS and not _is_news(origin)):
                continue
        yield Row(path, value, origin)


def _is_news(origin: Origin | None) -> bool:
    """Whether somebody chose the value, rather than a default or a dimension of the checkpoint."""
    return origin is not None and (origin.kind in ("user", "command line") or bool(origin.over))


def flatten(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf); mappings without keys are leaves."""
    for name, value in values.items():
        path = f"{prefix}.{name}"
        if isinstance(value, Mapping) and value and len(value) <= 8 and all(isinstance(key, str) for key in value):
            yield from flatten(value, path)
        else:
            yield path, value


def _side_dict(row: SideRow) -> dict[str, Any]:
    data = {"path": row.path, "draft": plain(row.value), "target": plain(row.target), "rule": row.rule}
    return {**data, **({"origin": origin_dict(row.origin)} if row.origin else {})}


def origin_dict(origin: Origin) -> dict[str, Any]:
    """An origin as plain data, beaten values included."""
    data: dict[str, Any] = {"kind": origin.kind}
    if origin.detail:
        data["detail"] = origin.detail
    if origin.source is not None:
        data["source"] = str(origin.source)
    if origin.inputs:
        data["inputs"] = list(origin.inputs)
    if origin.over:
        data["over"] = [{"value": plain(value), **origin_dict(beaten)} for beaten, value in origin.over]
    return data
