"""Options of a speculator: command line over file over checkpoint over record, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.findings.paths import Step, format_path
from specdec.config.language.expressions import MISSING, ExpressionError, Scope
from specdec.config.language.record import OptionSpec, SpeculatorRecord
from specdec.config.merge.ranks import Candidate, strongest
from specdec.config.merge.settings import written
from specdec.config.read.inputs import shown
from specdec.config.schema.compose import Composed

K = "num_speculative_tokens"
MODEL = "model"


@dataclass(frozen=True)
class Block:
    """One speculator's block of the file: where it is, and what the written method name implies."""

    composed: Composed
    path: tuple[Step, ...]
    implied: Mapping[str, Any]
    outer: tuple[
        Step, ...
    ] = ()  # of a chain's member: the chain's own block, whose options hold where the member has none

    @property
    def label(self) -> str:
        """``speculative`` or ``speculative[1]``."""
        return format_path(self.path)

    def at(self, name: str) -> str:
        """The dotted path of an option."""
        return format_path((*self.path, name))

    def tainted(self, name: str) -> bool:
        """What was written for this option is wrong, so its value is not known."""
        at = self.at(name)
        return any(t == at or t.startswith((at + ".", at + "[")) for t in self.composed.tainted)

    def candidates(self, names: Sequence[str]) -> list[Candidate]:
        """What was written under any of these spellings, the command line first."""
        found = [c for name in names for c in written(self.composed, (*self.path, name))]
        if self.outer:
            found += [c for name in names for c in written(self.composed, (*self.outer, name))]
        return sorted(found, key=lambda candidate: candidate[0].kind != "command line")


def merge_options(
    record: SpeculatorRecord, block: Block, facts: Mapping[str, Found], scope: Scope, known: Mapping[str, Any]
) -> tuple[dict[str, Found], list[Diagnostic]]:
    """Option -> value and origin; options without a value are absent."""
    findings: list[Diagnostic] = []
    stated: dict[str, list[Candidate]] = {}
    for name, spec in record.options.items():
        stated[name], conflict = _written(spec, block)
        findings += conflict
        if name in block.implied:
            origin = Origin("user", f"{block.label}.method stands for it")
            stated[name].append((origin, block.implied[name]))
    values = {name: strongest(candidates) for name, candidates in stated.items()}
    options: dict[str, Found] = {}
    for name, spec in record.options.items():
        default = None if block.tainted(name) else _default(name, record, values, facts, scope, known, block)
        fallback: Candidate = (Origin("record", f"default of {record.name}.{name}"), spec.default)
        found = strongest([*stated[name], *default, fallback] if default is not None else [*stated[name], fallback])
        if found is not None:
            options[name] = found
    return options, findings


def missing(
    record: SpeculatorRecord, block: Block, options: Mapping[str, Found], has_draft: bool, sound_draft: bool = True
) -> list[Diagnostic]:
    """An error for each value that must come from somewhere and came from nowhere.

    ``sound_draft``: False when something in the checkpoint is wrong, so that the right one may still say the value.
    """
    method_at = block.composed.locate((*block.path, "method"), True)
    findings = []
    for name, spec in record.options.items():
        needed = spec.required or name == K
        if not needed or name in options or (name == MODEL and has_draft):
            continue
        if block.tainted(name) or any(block.tainted(source) for source in default_sources(record, name)):
            continue
        if not sound_draft and default_sources(record, name, "draft."):
            continue
        message = f"{record.name} needs '{name}'"
        if name == K:
            message += " (tokens drafted per round), and no checkpoint says it"
        fix = f"set {block.at(name)}" + (
            " to a draft checkpoint" if name == MODEL else f", for example {block.at(name)}=3" if name == K else ""
        )
        findings.append(Diagnostic("missing-required", "error", block.at(name), message, fix, method_at))
    return findings


def default_sources(record: SpeculatorRecord, name: str, group: str = "options.") -> list[str]:
    """The options, or other values of a group, that the default of an option is taken from."""
    rule = record.defaults.get(name)
    sources = _listed(rule.get("from")) if isinstance(rule, Mapping) else []
    return [source.split(".")[1] for source in sources if source.startswith(group)]


def _written(spec: OptionSpec, block: Block) -> tuple[list[Candidate], list[Diagnostic]]:
    candidates = block.candidates([spec.name, *spec.aliases])
    findings = []
    for (one, a), (other, b) in pairwise(candidates):
        same_block = one.detail.rpartition(".")[0] == other.detail.rpartition(".")[0]
        if same_block and one.kind == other.kind and one.detail != other.detail and a != b:
            message = f"{one.detail} is {shown(a)} and {other.detail} is {shown(b)}; they are one option"
            findings.append(
                Diagnostic("conflicting-values", "error", one.detail, message, f"remove {other.detail}", one.source)
            )
    return candidates, findings


def _default(
    name: str, record: SpeculatorRecord, values: Mapping[str, Found | None], facts: Mapping[str, Found],
    scope: Scope, known: Mapping[str, Any], block: Block,
) -> list[Candidate]:  # fmt: skip
    """The record's default for an option: a value, or the first name that has one, or an expression."""
    rule = record.defaults.get(name)
    if rule is None:
        return []
    if not isinstance(rule, Mapping):
        return [(Origin("record", f"default of {record.name}.{name}"), rule)]
    for source in _listed(rule.get("from")):
        group, _, rest = source.partition(".")
        found = _named(group, rest, record, values, facts, block)
        if found is not None:
            return [(found.origin, found.value)]
    if "expr" not in rule:
        return []
    defaults = {f"options.{o}": found.value for o, found in values.items() if found is not None}
    try:
        value = scope.evaluate(rule["expr"], {**known, **defaults})
        inputs = scope.inputs(rule["expr"])
    except ExpressionError:
        return []
    if value is MISSING:
        return []
    kind = (
        Origin("derived", rule["expr"], inputs=_stated(inputs, facts))
        if inputs
        else Origin("record", f"default of {record.name}.{name}")
    )
    return [(kind, value)]


def _named(
    group: str,
    rest: str,
    record: SpeculatorRecord,
    values: Mapping[str, Found | None],
    facts: Mapping[str, Found],
    block: Block,
) -> Found | None:
    name, *steps = rest.split(".")
    if group == "draft":
        return facts.get(name)
    spec = record.options.get(name)
    found = values.get(name)
    literal = record.defaults.get(name)
    fallback = (
        literal
        if literal is not None and not isinstance(literal, Mapping)
        else spec.default
        if spec is not None
        else None
    )
    value = found.value if found is not None else fallback
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return None
    return Found(value, Origin("derived", f"copied from {rest}", inputs=(block.at(rest),)))


def _stated(inputs: Iterable[str], facts: Mapping[str, Found]) -> tuple[str, ...]:
    """The inputs that really had a value in the checkpoint, or all when none had."""
    names = tuple(inputs)
    real = tuple(
        n for n in names if (f := facts.get(n.removeprefix("draft."))) is not None and f.origin.kind == "checkpoint"
    )
    return real or names


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
