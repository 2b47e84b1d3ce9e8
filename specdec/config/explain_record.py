"""Pages about one record and one option: the parts of ``specdec explain`` that also make the option reference."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.record_types import OptionSpec, RuleSpec, SpeculatorRecord

WIDTH = 100


def record_page(record: SpeculatorRecord, registry: Any) -> str:
    """The page of a method, like a short manual page."""
    parts = [f"{record.name} · {record.title} · {record.status} · since {record.since}", _fold(record.summary)]
    facts = [
        ("Guarantee", guarantee_text(record)),
        ("Papers", ", ".join(record.references)),
        ("Extends", ", ".join(record.extends)),
        ("Taken over by", ", ".join(f"{s.record} when {s.when}" for s in record.specializations)),
        ("Also called", ", ".join(a.name + (" (deprecated)" if a.deprecated else "") for a in record.aliases)),
        ("Engines", engines_text(record)),
        ("Recognised by", record.declares or ""),
        ("Implementation", record.implementation or ""),
        ("Brought by", record.origin if record.origin != "built in" else ""),
    ]
    parts.append("\n".join(_pair(name, text) for name, text in facts if text))
    parts.append("Options\n" + "\n".join(_option_line(record, option) for option in record.options.values()))
    on = [name for name, value in record.capabilities.items() if value]
    parts.append("Capabilities\n  " + _fold(", ".join(on) or "none", 2))
    if record.derive:
        parts.append(
            "Numbers (k is num_speculative_tokens)\n" + "\n".join(f"  {n:<34}{e}" for n, e in record.derive.items())
        )
    limits = [_compatibility(name, entry, registry) for name, entry in record.compatibility.items()]
    if any(limits):
        parts.append("Does not work with\n" + "\n".join(line for line in limits if line))
    if record.rules:
        parts.append("Rules (specdec explain RULE)\n  " + _fold(", ".join(rule.id for rule in record.rules), 2))
    return "\n\n".join(parts)


def option_page(name: str, option: OptionSpec, rules: Iterable[RuleSpec]) -> str:
    """The page of one option or field."""
    facts = [
        ("Type", type_text(option)),
        ("Default", default_text(option)),
        ("Because", option.reason or ""),
        ("Unit", option.unit or ""),
        ("Inherited", "" if option.inherit == "never" else f"from the target ({option.inherit.replace('_', ' ')})"),
        ("Status", option.status if option.status != "stable" else ""),
        ("Also called", ", ".join(option.aliases)),
        ("Papers", ", ".join(option.references)),
        *((f"In {engine}", str(effect)) for engine, effect in option.engines.items()),
    ]
    page = f"{name}\n\n  {_fold(option.summary, 2)}\n\n" + "\n".join(
        _pair(label, text) for label, text in facts if text
    )
    lines = [f"  {rule.id}: {_fold(rule.message, 4)}" for rule in rules]
    return page + ("\n\nRules\n" + "\n".join(lines) if lines else "")


def type_text(option: OptionSpec) -> str:
    """``integer from 1, or null``; ``one of a, b``."""
    if option.enum is not None:
        text = "one of " + ", ".join(str(value) for value in option.enum if value is not None)
    else:
        text = " or ".join(kind for kind in option.types if kind != "null")
        if option.minimum is not None and option.maximum is not None:
            text += f" from {option.minimum:g} to {option.maximum:g}"
        elif option.minimum is not None:
            text += f" from {option.minimum:g}"
        elif option.maximum is not None:
            text += f" up to {option.maximum:g}"
        elif option.exclusive_minimum is not None:
            text += f" above {option.exclusive_minimum:g}"
    return text + (", or null" if "null" in option.types else "")


def default_text(option: OptionSpec) -> str:
    """The default as it would be written in YAML."""
    if option.required:
        return "required"
    value = option.default
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def guarantee_text(record: SpeculatorRecord) -> str:
    """What the output distribution is, in one line."""
    if record.guarantee == "lossless":
        return "lossless with the verification modes standard, block and greedy; synthetic and fly are lossy"
    return record.guarantee


def engines_text(record: SpeculatorRecord) -> str:
    """``embedded yes, vllm dspark since 0.26``."""
    parts = []
    for engine, entry in record.engines.items():
        if isinstance(entry, Mapping):
            name = entry.get("method") or entry.get("algorithm") or ""
            since = f" since {entry['since']}" if entry.get("since") else ""
            until = f" until {entry['until']}" if entry.get("until") else ""
            parts.append(f"{engine} {name}{since}{until}")
        else:
            parts.append(f"{engine} {'yes' if entry is True else 'no' if entry is False else entry}")
    return ", ".join(parts)


def _option_line(record: SpeculatorRecord, option: OptionSpec) -> str:
    value = record.defaults.get(option.name, option.default)
    shown = (
        "required" if option.required else "from the checkpoint" if isinstance(value, Mapping) else default_text(option)
    )
    return f"  {option.name:<40}{shown:<22}{textwrap.shorten(option.summary, WIDTH - 30, placeholder=' …')}"


def _compatibility(name: str, entry: Any, registry: Any) -> str:
    if not isinstance(entry, Mapping) or entry.get("supported", True) not in (False, "no"):
        return ""
    feature = registry.features.get(name)
    return f"  {feature.title if feature else name}: {_fold(str(entry.get('reason', '')), 4)}"


def _pair(name: str, text: str) -> str:
    return f"  {name:<16}{_fold(text, 18)}"


def _fold(text: str, indent: int = 0) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
