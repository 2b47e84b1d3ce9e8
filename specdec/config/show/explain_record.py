"""Pages about one record and one option: the parts of ``specdec explain`` that also make the option reference."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from specdec.config.language.record import OptionSpec, RuleSpec, SpeculatorRecord
from specdec.config.merge.inherit import SETTINGS

WIDTH = 100
TITLES = {"embedded": "specdec", "vllm": "vLLM", "sglang": "SGLang"}
INHERITED = {
    "never": "never: the target's setting does not reach the draft",
    "target": "the target's value where the draft has none",
    "same_checkpoint": "the target's value when the draft is inside the target's checkpoint, else not",
}


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
        ("Reads", own_facts(record, registry)),
        ("Implementation", record.implementation or ""),
        ("Draft module", record.draft_model or ""),
        ("Published", "; ".join(acceptance_text(row) for row in record.expected_acceptance)),
        ("Brought by", record.origin if record.origin != "built in" else ""),
    ]
    parts.append("\n".join(_pair(name, text) for name, text in facts if text))
    parts.append("Options\n" + "\n".join(_option_line(record, option) for option in record.options.values()))
    on = [name for name, value in record.capabilities.items() if value]
    parts.append("Capabilities\n  " + _fold(", ".join(on) or "none", 2))
    if record.derive:
        lines = [_row(name, formula(expression), 34) for name, expression in record.derive.items()]
        parts.append("Numbers (k is num_speculative_tokens)\n" + "\n".join(lines))
    if record.resources:
        lines = [_row(name, formula(str(expression)), 34) for name, expression in record.resources.items()]
        parts.append("Memory\n" + "\n".join(lines))
    if record.hash_factors:
        parts.append("Compiled graphs depend on\n  " + _fold(", ".join(record.hash_factors), 2))
    limits = [_compatibility(name, entry, registry) for name, entry in record.compatibility.items()]
    if any(limits):
        parts.append("Does not work with\n" + "\n".join(line for line in limits if line))
    if record.rules:
        parts.append("Rules (specdec explain RULE)\n  " + _fold(", ".join(rule.id for rule in record.rules), 2))
    return "\n\n".join(parts)


def acceptance_text(row: Mapping[str, Any]) -> str:
    """One published figure in a few words."""
    drafts = f", k={row['num_speculative_tokens']}" if "num_speculative_tokens" in row else ""
    return (
        f"{row['tokens_per_round']} tokens a round for {row['target']} on {row['prompts']}, temperature "
        f"{row['temperature']}{drafts} ({row['source']})"
    )


def own_facts(record: SpeculatorRecord, registry: Any) -> str:
    """Names of checkpoint values that make this method's drafts what they are: those that most other methods do not read."""
    others = [other.facts for other in registry.records.values() if other.facts]
    return ", ".join(name for name in record.facts if 2 * sum(name in facts for facts in others) < len(others))


def option_page(
    name: str, option: OptionSpec, rules: Iterable[RuleSpec], record: SpeculatorRecord | None = None
) -> str:
    """The page of one option or field; with ``record``, as that method reads it."""
    facts = [
        ("Type", type_text(option)),
        ("Default", default_phrase(record, option) if record else default_text(option)),
        ("Because", option.reason or ""),
        ("Unit", option.unit or ""),
        (
            "Inherited",
            INHERITED[option.inherit] if option.inherit != "never" or option.name in SETTINGS.values() else "",
        ),
        ("Status", option.status if option.status != "stable" else ""),
        ("Also called", ", ".join(option.aliases)),
        ("Papers", ", ".join(option.references)),
        *((f"In {TITLES[engine]}", effect) for engine, effect in effects(option, record)),
    ]
    page = f"{name}\n\n  {_fold(option.summary, 2)}\n\n" + "\n".join(
        _pair(label, text) for label, text in facts if text
    )
    lines = ["  " + _fold(f"{rule.id}: {message_text(rule.message)}", 4) for rule in rules]
    return page + ("\n\nRules\n" + "\n".join(lines) if lines else "")


def effects(option: OptionSpec, record: SpeculatorRecord | None) -> Iterator[tuple[str, str]]:
    """(engine, what it does with the option); of a field of another section nothing is said."""
    for engine in TITLES if record or option.engines else ():
        entry = record.engines.get(engine) if record else None
        if isinstance(entry, Mapping) and entry.get("supported", True) is False:
            yield engine, f"does not run {record.name if record else 'it'}"
        else:
            yield engine, option.engines.get(engine, "read") + (f" ({entry})" if entry == "planned" else "")


def message_text(message: str) -> str:
    """A rule's message with its placeholders as names: ``{k}`` is ``<k>``, a computed one ``<...>``."""
    return re.sub(r"\{([^{}]*)\}", lambda m: f"<{m[1]}>" if re.fullmatch(r"[\w.]+", m[1]) else "<...>", message)


def formula(expression: str) -> str:
    """An expression without the casts that only its types need."""
    return re.sub(r"dyn\(([\w.]+)\)", r"\1", expression)


def type_text(option: OptionSpec) -> str:
    """``integer from 1, or null``; ``one of a, b``."""
    if option.enum is not None:
        text = "one of " + ", ".join(str(value) for value in option.enum if value is not None)
    else:
        text = " or ".join(kind for kind in option.types if kind != "null")
        if option.minimum is not None and option.minimum == option.maximum:
            text = f"{option.minimum:g}"
        elif option.minimum is not None and option.maximum is not None:
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


def default_phrase(record: SpeculatorRecord, option: OptionSpec) -> str:
    """Where an unset option of a method comes from: ``n_predict of the checkpoint, else 5``."""
    value = record.defaults.get(option.name, option.default)
    if option.required or not isinstance(value, Mapping):
        return default_text(replace(option, default=value))
    named = value.get("from", ())
    parts = [_origin_name(path) for path in ([named] if isinstance(named, str) else named)]
    if "expr" in value:
        expression = formula(str(value["expr"]))
        parts.append(expression if " " not in expression else f"computed: {expression}")
    return ", else ".join(parts)


def _origin_name(path: str) -> str:
    group, _, name = path.partition(".")
    return f"{name} of the checkpoint" if group == "draft" else name if group == "options" else path


def guarantee_text(record: SpeculatorRecord) -> str:
    """What the output distribution is, in one line."""
    if record.guarantee == "lossless":
        return "lossless with the verification modes standard, block and coupled; synthetic and fly are lossy"
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
    computed = "from the checkpoint" if "draft." in str(value) else "from other options"
    shown = (
        computed if isinstance(value, Mapping) and not option.required else default_text(replace(option, default=value))
    )
    return f"  {option.name:<38}{shown:<20}{textwrap.shorten(option.summary, WIDTH - 60, placeholder=' …')}"


def _compatibility(name: str, entry: Any, registry: Any) -> str:
    if not isinstance(entry, Mapping) or entry.get("supported", True) not in (False, "no"):
        return ""
    feature = registry.features.get(name)
    return "  " + _fold(f"{feature.title if feature else name}: {entry.get('reason', '')}", 4)


def _pair(name: str, text: str) -> str:
    return _row(name, text, 16)


def _row(name: str, text: str, column: int) -> str:
    folded = textwrap.wrap(" ".join(text.split()), WIDTH - column - 2, break_on_hyphens=False) or [""]
    return "\n".join([f"  {name:<{column}}{folded[0]}", *(" " * (column + 2) + line for line in folded[1:])])


def _fold(text: str, indent: int = 0) -> str:
    """Text whose first line already stands at ``indent`` and whose later lines start there."""
    return textwrap.fill(" ".join(text.split()), WIDTH - indent, break_on_hyphens=False).replace(
        "\n", "\n" + " " * indent
    )
