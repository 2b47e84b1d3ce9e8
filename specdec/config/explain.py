"""What a name means, as text: a method, one of its options, a rule, a diagnostic code, a field, a capability, a number."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.catalog import catalog
from specdec.config.explain_record import option_page, record_page, type_text
from specdec.config.record_types import OptionSpec, RuleSpec, SpeculatorRecord
from specdec.config.sections import section_fields
from specdec.config.suggest import nearest

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
        return option_page(f"{head}.{rest}", field, ()) if field else None
    record = _record(head, registry)
    if record is None:
        return None
    if rest in record.options:
        return option_page(f"{record.name}.{rest}", record.options[rest], _rules_about(record, rest))
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
    """Every name that ``explain`` knows, in the order of ``specdec explain`` without arguments."""
    options = {name for record in registry.records.values() for name in record.options}
    rules = {rule.code or rule.id for record in registry.records.values() for rule in record.rules}
    capabilities = {name for record in registry.records.values() for name in record.capabilities}
    numbers = {name for record in registry.records.values() for name in record.derive}
    fields = [f"{section}.{name}" for section, named in section_fields().items() for name in named]
    return [
        *registry.records,
        *registry.aliases,
        *sorted(options),
        *catalog(),
        *sorted(rules),
        *sorted(capabilities),
        *sorted(numbers),
        *fields,
    ]


def _single(topic: str, registry: Any) -> str | None:
    record = _record(topic, registry)
    pages = [record_page(record, registry)] if record else []
    owners = _owners(topic, registry)
    if owners and record is None:
        pages.append(_shared_option(topic, owners))
    entry = catalog().get(topic)
    rules = [(r, rule) for r in registry.records.values() for rule in r.rules if topic in (rule.id, rule.code)]
    if rules:
        pages.append(rule_page(rules[0][1], [r.name for r, _ in rules]))
    if entry is not None:
        parts = [f"{entry.code}: {entry.title}", wrap(entry.explanation), f"Fix: {wrap(entry.fix)}"]
        if entry.example:
            parts.append("Example\n" + textwrap.indent(entry.example, "  "))
        pages.append("\n\n".join(parts))
    if not pages:
        pages = [page for page in (_capability(topic, registry), _number(topic, registry), _field(topic)) if page]
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
        groups.setdefault(f"{type_text(option)}, default {_default(record, option)}", []).append(record.name)
    if len(groups) == 1:
        return f"{page}\n\nRead by: {wrap(', '.join(record.name for record in owners))}"
    lines = [f"  {', '.join(names)}: {text}" for text, names in groups.items()]
    return page + "\n\nRead by\n" + "\n".join(lines)


def _default(record: SpeculatorRecord, option: OptionSpec) -> str:
    value = record.defaults.get(option.name, option.default)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _rules_about(record: SpeculatorRecord, option: str) -> Iterable[RuleSpec]:
    return [rule for rule in record.rules if rule.at == f"{ROOT}.{option}"]


def rule_page(rule: RuleSpec, methods: list[str]) -> str:
    """A rule: what must hold, when, what is said otherwise, and what to do."""
    lines = [
        f"{rule.id} ({rule.severity}{f', reported as {rule.code}' if rule.code and rule.code != rule.id else ''})",
        "",
    ]
    lines += [f"  Must hold:  {rule.check}"]
    if rule.when:
        lines += [f"  When:       {rule.when}"]
    lines += [f"  Reported:   at {rule.at}: {wrap(rule.message, 14)}"]
    if rule.fix:
        lines += [f"  Fix:        {wrap(rule.fix, 14)}"]
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
            groups.setdefault(str(record.derive[name]), []).append(record.name)
    if not groups:
        return None
    lines = [f"  {expression:<40} {wrap(', '.join(names), 43)}" for expression, names in groups.items()]
    return f"{name} (derived number; expressions are CEL, k is num_speculative_tokens)\n\n" + "\n".join(lines)


def _field(name: str) -> str | None:
    pages = [
        option_page(f"{section}.{name}", fields[name], ())
        for section, fields in section_fields().items()
        if name in fields
    ]
    return "\n\n".join(pages) or None


def wrap(text: str, indent: int = 0) -> str:
    """Text folded to the page's width; later lines start at ``indent``."""
    return textwrap.fill(" ".join(text.split()), WIDTH, initial_indent="", subsequent_indent=" " * indent)
