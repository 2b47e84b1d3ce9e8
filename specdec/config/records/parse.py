"""From the text of ``speculators.yaml`` to ``SpeculatorRecord`` and ``TargetRecord`` values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.language.record import (
    SAVED_TOGETHER,
    Alias,
    CapabilityRule,
    FactSpec,
    Feature,
    KnownFamily,
    OptionSpec,
    RewriteSpec,
    RuleSpec,
    Specialization,
    SpeculatorRecord,
    TargetRecord,
    Variable,
)
from specdec.config.records.data_files import schema_path
from specdec.config.records.extends import Entry, Merged, named
from specdec.config.records.text import Text


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The hand-written schema of records files."""
    import json

    loaded: dict[str, Any] = json.loads(schema_path("speculators.schema.json").read_text("utf-8"))
    return loaded


@lru_cache(maxsize=1)
def capability_defaults() -> dict[str, bool]:
    """Every capability flag with its default; the vocabulary is closed."""
    flags = schema()["definitions"]["capabilities"]["properties"]
    return {name: bool(flag["default"]) for name, flag in flags.items()}


@lru_cache(maxsize=1)
def number_defaults() -> dict[str, str]:
    """Every number a record may derive, with the expression used when it does not say."""
    numbers = schema()["definitions"]["derive"]["properties"]
    return {name: str(number["default"]) for name, number in numbers.items() if "default" in number}


Part = TypeVar("Part")


class Parts(Mapping[str, Part]):
    """Parts of a record by name, each built when it is first asked for: detection looks at all records, and at few parts."""

    def __init__(self, entries: Mapping[str, Entry], make: Callable[[str, Entry], Part]) -> None:
        self._entries, self._make = entries, make
        self._made: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        if name not in self._made:
            self._made[name] = self._make(name, self._entries[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def make_record(name: str, merged: Merged, source: Source, origin: str) -> SpeculatorRecord:
    """The finished record; ``merged`` has everything inherited already."""
    own, shared = merged.own, merged.shared
    capabilities, rules, reasons = _capabilities(shared.get("capabilities") or {})
    return SpeculatorRecord(
        name=name,
        title=own.get("title", name),
        summary=own.get("summary", ""),
        references=tuple(own.get("references") or ()),
        expected_acceptance=tuple(own.get("expected_acceptance") or ()),
        status=own.get("status", "stable"),
        since=str(own.get("since", "0.1")),
        guarantee=shared.get("guarantee", "lossless"),
        implementation=shared.get("implementation"),
        draft_model=shared.get("draft_model"),
        engines=shared.get("engines") or {},
        capabilities=capabilities,
        options=Parts(merged.options, make_option),
        declares=own.get("declares"),
        facts=Parts(merged.facts, make_fact),
        rewrites=tuple(_rewrite(entry) for entry in merged.rewrites),
        defaults=shared.get("defaults") or {},
        derive={**number_defaults(), **(shared.get("derive") or {})},
        hash_factors=tuple(shared.get("hash_factors") or ()),
        rules=tuple(make_rule(key, entry) for key, entry in merged.rules.items()),
        resources=shared.get("resources") or {},
        extends=merged.extends,
        aliases=tuple(_alias(key, raw) for key, raw in (own.get("aliases") or {}).items()),
        tensors=shared.get("tensors") or {},
        compatibility=shared.get("compatibility") or {},
        capability_rules=rules,
        reasons=reasons,
        accepts=own.get("accepts"),
        fallback=bool(own.get("fallback", False)),
        origin=origin,
        source=source,
    )


def _capabilities(raw: Mapping[str, Any]) -> tuple[dict[str, bool], tuple[CapabilityRule, ...], dict[str, str]]:
    values = dict(capability_defaults())
    rules: list[CapabilityRule] = []
    reasons: dict[str, str] = {}
    for name, flag in raw.items():
        if isinstance(flag, bool):
            values[name] = flag
            continue
        if "value" in flag:
            values[name] = flag["value"]
        if "reason" in flag:
            reasons[name] = flag["reason"]
        for rule in flag.get("except") or ():
            rules.append(CapabilityRule(name, not values[name], rule["when"], rule.get("reason", "")))
    return values, tuple(rules), reasons


def make_option(name: str, entry: Entry) -> OptionSpec:
    """An option as written; ``type`` may be one JSON type or a list of them."""
    raw = entry.raw
    types = raw.get("type", ())
    return OptionSpec(
        name=name,
        types=tuple([types] if isinstance(types, str) else types),
        summary=raw.get("summary", ""),
        default=raw.get("default"),
        required=raw.get("required", False),
        enum=tuple(raw["enum"]) if "enum" in raw else None,
        minimum=raw.get("minimum"),
        maximum=raw.get("maximum"),
        exclusive_minimum=raw.get("exclusive_minimum"),
        items=raw.get("items"),
        properties=raw.get("properties"),
        unit=raw.get("unit"),
        reason=raw.get("reason"),
        inherit=raw.get("inherit", "never"),
        status=raw.get("status", "stable"),
        since=str(raw.get("since", "0.1")),
        aliases=tuple(raw.get("aliases") or ()),
        engines=raw.get("engines") or {},
        examples=tuple(raw.get("examples") or ()),
        references=tuple(raw.get("references") or ()),
        source=entry.source,
    )


def make_fact(name: str, entry: Entry) -> FactSpec:
    """A fact as written; a key may be ``{key: ..., convert: ...}`` where its convention differs."""
    raw = entry.raw
    keys: list[str] = []
    converts: dict[str, str] = {}
    for item in raw.get("keys") or ():
        if isinstance(item, str):
            keys.append(item)
        else:
            keys.append(item["key"])
            converts[item["key"]] = item["convert"]
    return FactSpec(
        name=name,
        type=raw.get("type", "any"),
        keys=tuple(keys),
        default=raw.get("default"),
        minimum=raw.get("minimum"),
        default_in_speculators_format=raw.get("default_in_speculators_format"),
        has_default="default" in raw or "default_in_speculators_format" in raw,
        convert=raw.get("convert"),
        required=raw.get("required", False),
        summary=raw.get("summary", ""),
        key_converts=converts,
        source=entry.source,
    )


def _rewrite(entry: Entry) -> RewriteSpec:
    raw = entry.raw
    return RewriteSpec(
        when=raw["when"],
        set=raw.get("set") or {},
        n_predict=raw.get("n_predict"),
        promote=raw.get("promote"),
        copy=raw.get("copy") or {},
        append=raw.get("append") or {},
        final=raw.get("final", False),
        errors=tuple(raw.get("errors") or ()),
        source=entry.source,
    )


def make_rule(name: str, entry: Entry) -> RuleSpec:
    """A rule as written; its code is its id unless it names one."""
    raw = entry.raw
    rule = RuleSpec(
        id=name,
        check=raw.get("check", "true"),
        at=raw.get("at", "speculative"),
        message=raw.get("message", ""),
        severity=raw.get("severity", "error"),
        when=raw.get("when"),
        fix=raw.get("fix"),
        code=raw.get("code", name),
        source=entry.source,
    )
    return replace(rule, fix=SAVED_TOGETHER) if rule.about_tensors and rule.fix is None else rule


def _alias(name: str, raw: Mapping[str, Any] | None) -> Alias:
    raw = raw or {}
    return Alias(name, raw.get("deprecated", False), raw.get("note"), raw.get("implies") or {})


def specializations(raw: Mapping[str, Mapping[str, str]]) -> dict[str, list[Specialization]]:
    """Which records take over from which: parent name -> records in the order they are asked."""
    result: dict[str, list[Specialization]] = {}
    for child, parents in raw.items():
        for parent, when in parents.items():
            result.setdefault(parent, []).append(Specialization(child, when))
    return result


def make_target(
    name: str, raw: Mapping[str, Any], text: Text, rule_sets: Mapping[str, Mapping[str, Entry]]
) -> TargetRecord:
    """A target record: what a family of target models allows or needs."""
    path = ("targets", name)
    layers = raw.get("default_aux_layers")
    allowed = raw.get("allowed_methods")
    rules = [make_rule(key, entry) for key, entry in named(raw.get("rules") or (), text, (*path, "rules"))]
    for group in raw.get("use_rules") or ():
        rules += [make_rule(key, entry) for key, entry in rule_sets.get(group, {}).items()]
    return TargetRecord(
        name=name,
        match=raw.get("match") or {},
        summary=raw.get("summary", ""),
        allowed_methods=None if allowed is None else tuple(allowed),
        denied_methods=tuple(raw.get("denied_methods") or ()),
        reason=raw.get("reason", ""),
        default_aux_layers=None if layers is None else tuple(str(layer) for layer in layers),
        facts=raw.get("facts") or {},
        defaults=raw.get("defaults") or {},
        rules=tuple(rules),
        source=text.source(path),
    )


def make_known(name: str, raw: Mapping[str, Any]) -> KnownFamily:
    """A checkpoint family that is recognised in order to refuse it well."""
    return KnownFamily(name, raw["title"], raw["declares"], raw["message"])


def make_feature(name: str, raw: Mapping[str, Any]) -> Feature:
    """An engine feature of the compatibility table."""
    return Feature(name, raw["title"], raw.get("summary", ""), raw.get("when"), raw.get("short", name))


def make_variables(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, Variable]:
    """The typed names that every expression may use, dotted: ``engine.max_num_seqs``."""
    result: dict[str, Variable] = {}
    for group, names in raw.items():
        for name, spec in names.items():
            dotted = f"{group}.{name}" if group != "root" else name
            result[dotted] = Variable(dotted, spec["type"], spec.get("summary", ""), spec.get("default"))
    return result


def check_records_file(path: str | Path) -> list[Diagnostic]:
    """Every finding in a records file: syntax, schema, extends and use, and the types of all expressions."""
    from specdec.config.records.check import check_file

    return check_file(path)
