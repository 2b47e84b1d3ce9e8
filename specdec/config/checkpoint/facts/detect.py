"""Which record a checkpoint declares itself to be, from what it says and stores; never from where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec.config.checkpoint.facts.canonical import in_speculators_format, read_facts
from specdec.config.checkpoint.facts.clauses import true_leaves
from specdec.config.checkpoint.facts.evaluate import IDENTITY_FACTS, declares_scope, holds
from specdec.config.checkpoint.facts.rewrites import matches, predicts
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Found
from specdec.config.language.expressions import Scope
from specdec.config.language.record import KnownFamily, SpeculatorRecord
from specdec.config.records.registry import Registry


@dataclass(frozen=True)
class Detection:
    """``record`` is None when nothing, or more than one thing, is declared; ``candidates`` are what could be meant."""

    record: str | None
    evidence: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    known_not_implemented: KnownFamily | None = None
    fallback: bool = False  # recognised only because nothing more specific was declared


@dataclass(frozen=True)
class Identity:
    """What a checkpoint says about itself before a record is chosen, ready for expressions."""

    checkpoint: Checkpoint
    scope: Scope
    facts: Mapping[str, Found]
    values: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoint: Checkpoint, registry: Registry) -> Identity:
        """Reads the facts that ``declares`` may use."""
        facts, _ = read_facts(registry.fact_sets.get(IDENTITY_FACTS, {}), checkpoint)
        values: dict[str, object] = {f"draft.{name}": found.value for name, found in facts.items()}
        values["draft.speculators_format"] = in_speculators_format(checkpoint)
        values["draft.has_tensors"] = checkpoint.tensors is not None
        values["draft.file_format"] = checkpoint.file_format
        return cls(checkpoint, declares_scope(registry), facts, values)

    def holds(self, expression: str | None, record: SpeculatorRecord | None = None) -> bool:
        """Whether the expression holds; what it asks about rewrites is answered by those of the record."""
        return expression is not None and holds(self.scope, expression, self._values(record))

    def evidence(self, expression: str, record: SpeculatorRecord | None = None) -> tuple[str, ...]:
        """What the checkpoint states that makes the expression hold, as ``key value``."""
        shown: dict[str, None] = {}
        for leaf in true_leaves(expression, lambda part: self.holds(part, record)):
            compiled = self.scope.compile(leaf)
            for name in (*compiled.names, *compiled.asked):
                found = self.facts.get(name.removeprefix("draft."))
                if found is not None and found.origin.kind == "checkpoint":
                    shown[_words(found)] = None
        return tuple(shown)

    def _values(self, record: SpeculatorRecord | None) -> Mapping[str, object]:
        if record is None or not record.rewrites:
            return self.values
        applies = any(matches(row.when, self.checkpoint.config) for row in record.rewrites)
        predicted = predicts(record.rewrites, self.checkpoint.config)
        return {**self.values, "draft.rewrite_matches": applies, "draft.rewrite_predicts": predicted}


def detect(registry: Registry, checkpoint: Checkpoint | None, target: Checkpoint | None = None) -> Detection:
    """From the draft checkpoint; without one, from a target whose own config names its speculator."""
    if checkpoint is None:
        return _from_target(registry, target)
    identity = Identity.of(checkpoint, registry)
    for family in registry.known.values():
        if identity.holds(family.declares):
            return Detection(None, identity.evidence(family.declares), known_not_implemented=family)
    matching = [r for r in registry.records.values() if identity.holds(r.declares, r)]
    specific = [r for r in matching if not r.fallback]
    chosen = _most_specific(specific) if specific else matching
    if len(chosen) == 1:
        record = chosen[0]
        evidence = identity.evidence(record.declares or "", record)
        return Detection(record.name, evidence, (record.name,), fallback=record.fallback)
    if chosen:
        evidence = tuple(dict.fromkeys(e for r in chosen for e in identity.evidence(r.declares or "", r)))
        return Detection(None, evidence, tuple(r.name for r in chosen))
    return Detection(None, candidates=tuple(r.name for r in registry.records.values() if identity.holds(r.accepts, r)))


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


def _words(found: Found) -> str:
    detail = found.origin.detail
    if detail.startswith("tensor ") or not isinstance(found.value, (str, int, list)):
        return detail
    value = "[" + ", ".join(map(str, found.value)) + "]" if isinstance(found.value, list) else str(found.value)
    return f"{detail} {value}"
