"""What a name means, as text: a method, one of its options, a rule, a diagnostic code, a field, a capability, a number."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.findings.suggest import nearest
from specdec.config.language.record import OptionSpec, RuleSpec, SpeculatorRecord
from specdec.config.records.sections import section_fields
from specdec.config.show.catalog import catalog
from specdec.config.show.explain_record import (
    default_phrase,
    formula,
    message_text,
    option_page,
    record_page,
    type_text,
)
from specdec.config.show.matrix import NO, YES, feature_cell

WIDTH = 100
ROOT = "speculative"


def explain(topic: str, registry: Any) -> str | None:
    """The page of a topic; None when nothing has that name."""
    topic = topic.strip().removeprefix(f"{ROOT}.")
    head, _, rest = topic.partition(".")
    if not rest:
        return _single(topic, registry)
    if head in section_fields():
        field = section_fields()[head].get(rest)
        if field:
            return option_page(f"{head}.{rest}", field, ())
    if head in ("draft", "engine") or f"{head}.{rest}" in registry.variables:
        return _value(f"{head}.{rest}", registry)
    record = _record(head, registry)
    if record is None:
        return None
    if rest in record.options:
        return option_page(f"{record.name}.{rest}", record.options[rest], _rules_about(record, rest), record)
    for rule in record.rules:
        if rest in (rule.id, rule.code):
            return rule_page(rule, [record.name])
    return None


def suggestion(topic: str, registry: Any) -> str | None:
    """The nearest topic to one that does not exist."""
    head, _, rest = topic.strip().removeprefix(f"{ROOT}.").partition(".")
    if rest:
        record = _record(head, registry)
        if record is not None:
            near = nearest(rest, record.options)
            return f"{record.name}.{near}" if near else None
        if head in section_fields():
            near = nearest(rest, section_fields()[head])
            return f"{head}.{near}" if near else None
    return nearest(topic, topics(registry))


def topics(registry: Any) -> list[str]:
    """Every name that ``explain`` knows."""
    return [name for names in topic_groups(registry).values() for name in names]


def topics_page(registry: Any) -> str:
    """What ``specdec explain`` prints without arguments: every topic, by kind."""
    groups = topic_groups(registry).items()
    return "\n\n".join(f"{title}\n  {wrap(', '.join(names), 2)}" for title, names in groups)


def topic_groups(registry: Any) -> dict[str, list[str]]:
    """Kind of topic -> names."""
    options = {name for record in registry.records.values() for name in record.options}
    rules = {rule.code or rule.id for record in registry.records.values() for rule in record.rules}
    capabilities = {name for record in registry.records.values() for name in record.capabilities}
    numbers = {name for record in registry.records.values() for name in record.derive}
    facts = {f"draft.{name}" for record in registry.records.values() for name in record.facts}
    values = facts | set(registry.variables)
    fields = [f"{section}.{name}" for section, named in section_fields().items() for name in named]
    return {
        "methods": list(registry.records),
        "other names of methods": list(registry.aliases),
        "options of methods": sorted(options),
        "error codes": list(catalog()),
        "rules of methods": sorted(rules - set(catalog())),
        "capabilities": sorted(capabilities),
        "numbers a method owes the engine": sorted(numbers),
        "engine features": list(registry.features),
        "fields": fields,
        "values of checkpoints and engine in rules": sorted(values - set(fields) - {"k", "has_draft"}),
    }


def _single(topic: str, registry: Any) -> str | None:
    record = _record(topic, registry)
    pages = [record_page(record, registry)] if record else []
    owners = _owners(topic, registry)
    if owners and record is None:
        pages.append(_shared_option(topic, owners))
    entry = catalog().get(topic)
    if entry is not None:
        parts = [f"{entry.code}: {entry.title}", wrap(entry.explanation), wrap(f"Fix: {entry.fix}")]
        if entry.example:
            parts.append("Example\n" + textwrap.indent(entry.example, "  "))
        pages.append("\n\n".join(parts))
    rules = [(r, rule) for r in registry.records.values() for rule in r.rules if topic in (rule.id, rule.code)]
    if rules:
        for rule in {rule.id: rule for _, rule in rules}.values():
            pages.append(rule_page(rule, [r.name for r, other in rules if other.id == rule.id]))
    if not pages:
        pages = [
            page
            for page in (
                _capability(topic, registry),
                _number(topic, registry),
                _field(topic),
                _feature(topic, registry),
            )
            if page
        ]
    return "\n\n".join(pages) or None


def _record(name: str, registry: Any) -> SpeculatorRecord | None:
    try:
        record: SpeculatorRecord = registry.resolve_name(name)[0]
    except KeyError:
        return None
    return record


def _owners(option: str, registry: Any) -> list[SpeculatorRecord]:
    return [record for record in registry.records.values() if option in record.options]


def _shared_option(name: str, owners: list[SpeculatorRecord]) -> str:
    """An option that several methods read: one page, then the methods, with the values in which they differ."""
    first: OptionSpec = owners[0].options[name]
    page = option_page(f"{ROOT}.{name}", first, ())
    groups: dict[str, list[str]] = {}
    for record in owners:
        option = record.options[name]
        limits = "" if type_text(option) == type_text(first) else f"{type_text(option)}; "
        groups.setdefault(f"{limits}default {default_phrase(record, option)}", []).append(record.name)
    if len(groups) == 1:
        return f"{page}\n\n{wrap('Read by: ' + ', '.join(record.name for record in owners))}"
    lines = [f"  {wrap(', '.join(names), 2)}\n      {wrap(text, 6)}" for text, names in groups.items()]
    return page + "\n\nRead by\n" + "\n".join(lines)


def _rules_about(record: SpeculatorRecord, option: str) -> Iterable[RuleSpec]:
    return [rule for rule in record.rules if rule.at == f"{ROOT}.{option}"]


def rule_page(rule: RuleSpec, methods: list[str]) -> str:
    """A rule: what must hold, when, what is said otherwise, and what to do."""
    lines = [
        f"{rule.id} ({rule.severity}{f', reported as {rule.code}' if rule.code and rule.code != rule.id else ''})",
        "",
    ]
    lines += [f"  Must hold:  {wrap(rule.check, 14)}"]
    if rule.when:
        lines += [f"  When:       {wrap(rule.when, 14)}"]
    lines += [f"  At:         {rule.at}", f"  Message:    {wrap(message_text(rule.message), 14)}"]
    if rule.fix:
        lines += [f"  Fix:        {wrap(message_text(rule.fix), 14)}"]
    lines += [f"  Rule of:    {wrap(', '.join(methods), 14)}"]
    return "\n".join(lines)


def _capability(name: str, registry: Any) -> str | None:
    flags = {
        record.name: record.capabilities[name] for record in registry.records.values() if name in record.capabilities
    }
    if not flags:
        return None
    about = registry.capability_summaries.get(name, "") if hasattr(registry, "capability_summaries") else ""
    on = ", ".join(method for method, value in flags.items() if value) or "none"
    off = ", ".join(method for method, value in flags.items() if not value) or "none"
    return f"{name} (capability)\n\n  {wrap(about)}\n  On:   {wrap(on, 8)}\n  Off:  {wrap(off, 8)}".replace(
        "\n  \n", "\n"
    )


def _number(name: str, registry: Any) -> str | None:
    groups: dict[str, list[str]] = {}
    for record in registry.records.values():
        if name in record.derive:
            groups.setdefault(formula(str(record.derive[name])), []).append(record.name)
    if not groups:
        return None
    lines = [f"  {wrap(', '.join(names), 2)}\n      {wrap(expression, 6)}" for expression, names in groups.items()]
    return f"{name} (derived number; expressions are CEL, k is num_speculative_tokens)\n\n" + "\n".join(lines)


def _value(name: str, registry: Any) -> str | None:
    """A value that expressions may use: ``draft.block_size`` with the keys it is read from, ``target.hidden_size``."""
    group, _, short = name.partition(".")
    variable = registry.variables.get(name)
    facts: dict[str, list[str]] = {}
    if group == "draft":
        for record in registry.records.values():
            fact = record.facts.get(short)
            if fact is not None:
                facts.setdefault(f"{', '.join(fact.keys) or 'derived'}\n{fact.summary}\n{fact.type}", []).append(
                    record.name
                )
    if variable is None and not facts:
        return None
    lines = [f"{name} (value of a checkpoint)" if facts else f"{name} (value that rules may read)"]
    if variable is not None:
        lines.append(f"\n  {wrap(variable.summary, 2)}\n\n  Type:     {variable.type}")
    for text, names in facts.items():
        keys, summary, kind = text.split("\n")
        lines.append(
            f"\n  {wrap(summary, 2)}\n\n  Type:     {kind}\n  Keys:     {wrap(keys, 12)}\n  Read by:  {wrap(', '.join(names), 12)}"
        )
    return "\n".join(lines)


def _feature(name: str, registry: Any) -> str | None:
    """An engine feature: which methods work with it, and why the others do not."""
    found = [f for f in registry.features.values() if name in (f.name, f.short)]
    if not found:
        return None
    feature = found[0]
    lines = [
        f"{feature.name} (engine feature, column '{feature.short}' of 'specdec list')",
        "",
        f"  {feature.summary}",
        "",
    ]
    cells: dict[str, list[str]] = {}
    for record in registry.records.values():
        entry = record.compatibility.get(feature.name)
        reason = str(entry.get("reason", "")) if isinstance(entry, Mapping) else ""
        cell = feature_cell(record, feature.name)
        cells.setdefault(f"{cell}: {reason}" if cell != YES and reason else cell, []).append(record.name)
    for text, names in cells.items():
        lines.append(f"  {wrap(', '.join(names), 2)}\n      {wrap(text.replace(f'{NO}:', 'no:'), 6)}")
    return "\n".join(lines)


def _field(name: str) -> str | None:
    pages = [
        option_page(f"{section}.{name}", fields[name], ())
        for section, fields in section_fields().items()
        if name in fields
    ]
    return "\n\n".join(pages) or None


def wrap(text: str, indent: int = 0) -> str:
    """Text that starts at ``indent``, folded to the page's width."""
    folded = textwrap.fill(" ".join(text.split()), WIDTH - indent, break_on_hyphens=False)
    return folded.replace("\n", "\n" + " " * indent)
