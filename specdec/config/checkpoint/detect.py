"""Which record a checkpoint declares itself to be, from what it says and stores; never from where it lies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specdec.config.checkpoint.evaluate import holds
from specdec.config.checkpoint.facts import in_speculators_format, read_facts
from specdec.config.checkpoint.identity import identity_facts
from specdec.config.checkpoint.rewrites import matches
from specdec.config.checkpoint.value import Checkpoint
from specdec.config.record_types import KnownFamily, SpeculatorRecord
from specdec.config.registry import Registry

_LITERAL = re.compile(r"""'([^']*)'|"([^"]*)\"""")


@dataclass(frozen=True)
class Detection:
    """``record`` is None when nothing or more than one thing is declared; then ``candidates`` are what could be meant."""

    record: str | None
    evidence: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    known_not_implemented: KnownFamily | None = None
    fallback: bool = False  # recognised only because nothing more specific was declared


def detect(registry: Registry, checkpoint: Checkpoint | None, target: Checkpoint | None = None) -> Detection:
    """From the draft checkpoint; without one, from a target whose own config names its speculator."""
    if checkpoint is None:
        return _from_target(registry, target)
    identity = identity_facts(checkpoint)
    for family in registry.known.values():
        if holds(family.declares, identity):
            return Detection(None, _evidence(family.declares, identity), known_not_implemented=family)
    matching = [r for r in registry.records.values() if declares(r, checkpoint, identity)]
    strong = _most_specific([r for r in matching if not r.fallback])
    chosen = strong or [r for r in matching if r.fallback]
    if len(chosen) == 1:
        record = chosen[0]
        return Detection(
            record.name, _evidence(record.declares or "", identity), (record.name,), fallback=record.fallback
        )
    names = [r.name for r in chosen] or [r.name for r in registry.records.values() if accepts(r, checkpoint, identity)]
    return Detection(None, candidates=tuple(names))


def declares(record: SpeculatorRecord, checkpoint: Checkpoint, identity: Mapping[str, Any] | None = None) -> bool:
    """Whether the checkpoint declares that it is for this record."""
    return record.declares is not None and _holds(record.declares, record, checkpoint, identity)


def accepts(record: SpeculatorRecord, checkpoint: Checkpoint, identity: Mapping[str, Any] | None = None) -> bool:
    """Whether the record, named explicitly, may run a checkpoint that does not declare it."""
    return record.accepts is not None and _holds(record.accepts, record, checkpoint, identity)


def _holds(
    expression: str, record: SpeculatorRecord, checkpoint: Checkpoint, identity: Mapping[str, Any] | None
) -> bool:
    facts, _ = read_facts(record.facts, checkpoint)
    known = identity if identity is not None else identity_facts(checkpoint)
    rewritten = any(matches(row.when, checkpoint.config) for row in record.rewrites)
    return holds(expression, {**{name: found.value for name, found in facts.items()}, **known, "rewrite_matches": rewritten})


def _from_target(registry: Registry, target: Checkpoint | None) -> Detection:
    if target is None:
        return Detection(None)
    found = detect(registry, target)
    if in_speculators_format(target):
        return found
    # A target with modules of its own may be used with them, but that is for the user to say.
    return Detection(None, candidates=() if found.fallback else found.candidates)


def _most_specific(records: list[SpeculatorRecord]) -> list[SpeculatorRecord]:
    """Without the records that another of them extends or takes over from."""
    names = {r.name for r in records}
    outranked = {parent for r in records for parent in r.extends}
    outranked |= {r.name for r in records if any(s.record in names for s in r.specializations)}
    return [r for r in records if r.name not in outranked]


def _evidence(expression: str, identity: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of the words in an expression the checkpoint shows, and where."""
    literals = {a or b for a, b in _LITERAL.findall(expression)} - {""}
    return tuple(dict.fromkeys(_shown(sorted(literals), identity)))


def _shown(literals: Iterable[str], identity: Mapping[str, Any]) -> Iterable[str]:
    words = list(literals)
    for architecture in identity["architectures"]:
        if any(word in architecture for word in words):
            yield f"architectures [{architecture}]"
    for name in ("model_type", "speculators_model_type"):
        if identity[name] in words:
            yield f"{name} {identity[name]}"
    for word in words:
        if word in identity["keys"]:
            yield f"key {word}"
        tensor = next((t for t in identity["tensor_names"] if t.startswith(word)), None)
        if tensor is not None and "." in word or tensor == word:
            yield f"tensor {tensor}"
