"""How a record takes over what it extends and the sets it uses: child keys win, maps merge, lists replace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.findings.diagnostics import Source
from specdec.config.records.text import Text


class RecordError(ValueError):
    """A record that cannot be built; ``source`` is where, ``fix`` what to change."""

    def __init__(self, code: str, message: str, source: Source | None = None, fix: str = "") -> None:
        self.code, self.source, self.fix = code, source, fix
        super().__init__(f"{source}: {message}" if source else message)
        self.message = message


@dataclass(frozen=True)
class Entry:
    """One named part of a record (an option, a fact, a rule) and where it was written."""

    raw: Mapping[str, Any]
    source: Source


@dataclass
class Merged:
    """A record after ``extends`` and ``use``."""

    own: dict[str, Any]  # keys that are never inherited
    shared: dict[str, Any]  # keys that are
    options: dict[str, Entry] = field(default_factory=dict)
    facts: dict[str, Entry] = field(default_factory=dict)
    rules: dict[str, Entry] = field(default_factory=dict)
    rewrites: list[Entry] = field(default_factory=list)
    extends: tuple[str, ...] = ()


DRAFTED = "num_speculative_tokens"  # the one option that every speculator has
OWN = ("title", "summary", "references", "status", "since", "aliases", "specializes", "expected_acceptance")
SHARED = (
    "guarantee", "implementation", "draft_model", "engines", "capabilities", "defaults", "derive", "hash_factors",
    "resources", "compatibility",
)  # fmt: skip
OWN_CHECKPOINT = ("declares", "accepts", "fallback")


def deep_merge(base: Any, over: Any) -> Any:
    """Maps merge key by key; anything else is replaced."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: deep_merge(base.get(key), value) for key, value in over.items()}}
    return over


def merge(
    name: str, text: Text, sets: Mapping[str, Mapping[str, Mapping[str, Entry]]], parent: Merged | None
) -> Merged:
    """The record ``name`` of ``text`` on top of ``parent``; ``sets`` are the named option, fact and rule sets."""
    path: tuple[Any, ...] = ("speculators", name)
    raw: Mapping[str, Any] = text.value["speculators"][name] or {}
    checkpoint: Mapping[str, Any] = raw.get("checkpoint") or {}
    own = {key: raw[key] for key in OWN if key in raw}
    own |= {key: checkpoint[key] for key in OWN_CHECKPOINT if key in checkpoint}
    shared = dict(parent.shared) if parent else {}
    for key in SHARED:
        if key in raw:
            shared[key] = deep_merge(shared.get(key), raw[key])
    if "tensors" in checkpoint:
        shared["tensors"] = deep_merge(shared.get("tensors"), checkpoint["tensors"])
    result = Merged(own, shared)
    parts = (
        ("options", raw.get("options"), (*path, "options"), "option_sets"),
        ("facts", checkpoint.get("facts"), (*path, "checkpoint", "facts"), "fact_sets"),
        ("rules", raw.get("rules"), (*path, "rules"), "rule_sets"),
    )
    for attribute, section, where, set_name in parts:
        inherited = getattr(parent, attribute) if parent else _drafted(sets) if attribute == "options" else {}
        setattr(result, attribute, _entries(inherited, section or {}, text, where, sets.get(set_name, {})))
    dropped = (raw.get("options") or {}).get("drop") or ()
    if DRAFTED in dropped:
        message = f"{DRAFTED} cannot be dropped: every speculator drafts a number of tokens"
        source = text.source((*path, "options", "drop"))
        raise RecordError("drafted-count-dropped", message, source, "remove it from drop; state it under defaults")
    if dropped and "defaults" in shared:
        shared["defaults"] = _without(shared["defaults"], dropped)
    if "rewrites" in checkpoint:
        where = (*path, "checkpoint", "rewrites")
        result.rewrites = [Entry(row, text.source((*where, i))) for i, row in enumerate(checkpoint["rewrites"])]
    elif parent:
        result.rewrites = parent.rewrites
    return result


def _drafted(sets: Mapping[str, Mapping[str, Mapping[str, Entry]]]) -> dict[str, Entry]:
    """What every record has although it does not say so: the option for the number of drafted tokens."""
    entry = sets.get("option_sets", {}).get("drafting", {}).get(DRAFTED)
    return {} if entry is None else {DRAFTED: entry}


def _without(defaults: Mapping[str, Any], dropped: Iterable[str]) -> dict[str, Any]:
    """Inherited defaults without those of dropped options, and without dropped options as sources of others."""
    gone = {f"options.{name}" for name in dropped}
    kept: dict[str, Any] = {}
    for key, rule in defaults.items():
        if f"options.{key}" in gone:
            continue
        if isinstance(rule, Mapping) and isinstance(rule.get("from"), list):
            rule = {**rule, "from": [name for name in rule["from"] if ".".join(name.split(".")[:2]) not in gone]}
        kept[key] = rule
    return kept


def _entries(
    inherited: Mapping[str, Entry],
    section: Any,
    text: Text,
    path: tuple[Any, ...],
    sets: Mapping[str, Mapping[str, Entry]],
) -> dict[str, Entry]:
    entries = dict(inherited)
    for i, name in enumerate(section.get("use") or ()):
        if name not in sets:
            source = text.source((*path, "use", i))
            raise RecordError(
                "unknown-set", f"there is no set {name!r}; there is: {', '.join(sets)}", source, "name one of these"
            )
        entries.update(sets[name])
    for key, entry in named(section.get("define") or {}, text, (*path, "define")):
        base = entries.get(key)
        entries[key] = Entry(deep_merge(base.raw, entry.raw), entry.source) if base else entry
    for i, name in enumerate(section.get("drop") or ()):
        if name in sets and name not in entries:
            entries = {key: entry for key, entry in entries.items() if key not in sets[name]}
            continue
        if name not in entries:
            source = text.source((*path, "drop", i))
            raise RecordError("unknown-entry", f"there is no {name!r} to drop", source, "remove this line")
        del entries[name]
    return entries


def named(section: Any, text: Text, path: tuple[Any, ...]) -> Iterable[tuple[str, Entry]]:
    """The entries of a map of maps, or of a list of maps with ``id``."""
    if isinstance(section, Mapping):
        for key, raw in section.items():
            yield key, Entry(raw or {}, text.source((*path, key)))
    else:
        for i, raw in enumerate(section):
            yield raw["id"], Entry(raw, text.source((*path, i)))


def read_sets(text: Text) -> dict[str, dict[str, dict[str, Entry]]]:
    """The option, fact and rule sets of one document."""
    sets: dict[str, dict[str, dict[str, Entry]]] = {}
    for kind in ("option_sets", "fact_sets", "rule_sets"):
        groups = (text.value or {}).get(kind) or {}
        sets[kind] = {name: dict(named(group, text, (kind, name))) for name, group in groups.items()}
    return sets
