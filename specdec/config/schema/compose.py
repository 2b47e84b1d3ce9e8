"""From what was given to checked data: file, overrides, aliases first, then one check; faulty values leave the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path, parse_path
from specdec.config.findings.suggest import nearest
from specdec.config.read.inputs import Given, Locate, at_path, nowhere, without
from specdec.config.schema.checker import Checker, checker_for, checker_of, records_for, unique
from specdec.config.schema.known import SPECULATIVE

LATER = ("missing-required",)  # what only a method and its checkpoint can decide
MEMBERS = "speculators"  # the option of a chain that lists its members


@dataclass(frozen=True)
class Composed:
    """``user`` is what the file (or dict) says, ``data`` is that with the overrides; both without faulty values."""

    data: dict[str, Any]
    user: dict[str, Any]
    registry: Any
    checker: Checker
    locate: Locate
    overridden: Mapping[tuple[Step, ...], Source] = field(default_factory=dict)  # path -> the override that set it
    diagnostics: tuple[Diagnostic, ...] = ()
    tainted: frozenset[str] = frozenset()  # dotted paths whose value is not known because what was written is wrong
    usable: bool = True
    deferred: tuple[Diagnostic, ...] = ()  # options that only a more specific record reads, which may still take over
    locate_user: Locate = nowhere  # where the file says it, whatever an override says

    def command_line(self, path: tuple[Step, ...]) -> Source | None:
        """The override that set the value at a path, or a part of it."""
        for changed, source in self.overridden.items():
            if changed[: len(path)] == path or path[: len(changed)] == changed:
                return source
        return None


def compose(given: Given, overrides: Sequence[str], registry: Any | None) -> Composed:
    """Applies overrides, puts method names into one spelling, checks against the schema of all records."""
    data = given.data or {}
    if registry is None:
        registry, problems = records_for(data, given.folder)
        checker, _ = checker_for(data, given.folder)
    else:
        checker, problems = checker_of(registry), []
    broken = {d.path for d in given.diagnostics}
    findings = [*given.diagnostics, *problems]
    start = checker.known.with_whole_numbers(spell_methods(data, registry))
    sources: Mapping[tuple[Step, ...], Source] = {}
    locate, merged = given.locate, start
    texts, wrong = override_texts(overrides)
    findings += wrong
    if texts:
        from specdec.config.read.overrides import apply_overrides, locator

        findings += _check(checker, start, given.locate, broken)
        merged, sources, wrong = apply_overrides(start, texts, checker.known.methods)
        findings += wrong
        merged = checker.known.with_whole_numbers(spell_methods(merged, registry))
        locate = locator(sources, given.locate)
        if wrong:
            return Composed({}, {}, registry, checker, locate, sources, tuple(unique(findings)), usable=False)
    findings = unique([*findings, *_check(checker, merged, locate, broken)])
    deferred = tuple(d for d in findings if d.code == "unknown-key" and read_by_successor(d, merged, registry))
    findings = [d for d in findings if d not in deferred]
    errors = [d for d in findings if d.severity == "error"]
    user, tainted = start, set(broken)
    for error in errors:
        path = whole_value(parse_path(error.path))
        merged, user = without(merged, path) or {}, without(user, path) or {}
        tainted.add(error.path)
        tainted |= _meant(error, checker, start)
    composed = Composed(
        merged,
        user,
        registry,
        checker,
        locate,
        sources,
        tuple(findings),
        frozenset(tainted),
        deferred=deferred,
        locate_user=given.locate,
    )
    return replace(composed, usable=not any(_stops(d) for d in errors))


def override_texts(overrides: Any) -> tuple[list[str], list[Diagnostic]]:
    """Overrides as a list of texts; anything else is a finding."""
    if isinstance(overrides, str):
        return [overrides], []
    if overrides is None:
        return [], []
    try:
        items = list(overrides)
    except TypeError:
        return [], [
            Diagnostic(
                "wrong-type", "error", "", "overrides must be a list of texts such as 'engine.seed=1'", "write a list"
            )
        ]
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) == len(items):
        return texts, []
    return texts, [
        Diagnostic("wrong-type", "error", "", "every override must be a text such as 'engine.seed=1'", "write texts")
    ]


def spell_methods(data: dict[str, Any], registry: Any) -> dict[str, Any]:
    """The same data with each ``method`` in the case that the records use, so that ``NEXTN`` is the alias ``nextn``."""
    block = data.get(SPECULATIVE)
    if isinstance(block, dict):
        return {**data, SPECULATIVE: _spelled(block, registry)}
    if isinstance(block, list):
        return {**data, SPECULATIVE: [_spelled(b, registry) if isinstance(b, dict) else b for b in block]}
    return data


def _spelled(block: dict[str, Any], registry: Any) -> dict[str, Any]:
    method = block.get("method")
    if not isinstance(method, str) or method in registry.records:
        return block
    for name in (*registry.records, *(alias.name for _, alias in registry.aliases.values())):
        if name.lower() == method.lower():
            return {**block, "method": name}
    return block


def read_by_successor(error: Diagnostic, data: Any, registry: Any) -> bool:
    """Whether an option that the written method does not read belongs to a record that may take over from it."""
    *parents, key = parse_path(error.path) or [""]
    block = at_path(data, parents) if parents[:1] == [SPECULATIVE] else None
    if not isinstance(block, dict) or not isinstance(block.get("method"), str) or len(parents) > 3:
        return False
    try:
        record, _ = registry.resolve_name(block["method"])
    except KeyError:
        return False
    return any(key in registry.records[step.record].options for step in record.specializations)


def whole_value(path: tuple[Step, ...]) -> tuple[Step, ...]:
    """The path without what is below a list: a list with one faulty item is no value (a chain's members are values)."""
    start = 3 if path[:2] == (SPECULATIVE, MEMBERS) else 2 if path[:1] == (SPECULATIVE,) else 1
    cut = next((i for i, step in enumerate(path) if i >= start and isinstance(step, int)), len(path))
    return path[:cut]


def _check(checker: Checker, data: Any, locate: Locate, skip: set[str]) -> list[Diagnostic]:
    return [d for d in checker.check(data, locate, skip=skip) if d.code not in LATER]


def _meant(error: Diagnostic, checker: Checker, data: Any) -> set[str]:
    """The paths that a misspelt key probably meant: their absence is no second fault."""
    if error.code != "unknown-key" or not parse_path(error.path):
        return set()
    *parents, key = parse_path(error.path)
    if not parents:
        near = nearest(str(key), checker.known.sections)
        return {near} if near else set()
    if parents[0] != SPECULATIVE:
        return set()
    block = at_path(data, parents)
    method = checker.known.canonical_method(block.get("method")) if isinstance(block, dict) else None
    owners = [method] if method else list(checker.known.methods)
    names = {option for owner in owners for option in checker.known.methods[owner]}
    near = nearest(str(key), sorted(names))
    return {format_path((*parents, near))} if near else set()


def _stops(error: Diagnostic) -> bool:
    """Whether nothing sensible can be resolved after this error: the block or its method is not known."""
    path = parse_path(error.path)
    if path in ((), (SPECULATIVE,)) or path[-1] == "method":
        return True
    if path[0] == SPECULATIVE and len(path) == 2 and isinstance(path[1], int):
        return True
    near = error.code == "unknown-key" and len(path) == 1
    return near and nearest(str(path[0]), [SPECULATIVE]) is not None
