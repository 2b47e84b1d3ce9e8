"""The set of records a configuration is resolved against: an immutable value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.record import Alias, Feature, KnownFamily, SpeculatorRecord, TargetRecord, Variable
from specdec.config.records import parse as build
from specdec.config.records import text as records_text
from specdec.config.records.announced import packages_may_bring_records
from specdec.config.records.data_files import data_file
from specdec.config.records.extends import Entry, Merged, RecordError, deep_merge, merge, read_sets
from specdec.config.records.index import RECORDS, read_indexed
from specdec.config.records.text import Text

if TYPE_CHECKING:
    from specdec.config.language.expressions import Scope


class UnknownSpeculatorError(KeyError):
    """No record and no alias has this name; ``near`` are the closest names."""

    def __init__(self, name: str, near: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.name, self.near, self.names = name, near, names
        hint = f"did you mean {near[0]!r}?" if near else "there is: " + ", ".join(names)
        super().__init__(f"unknown method {name!r}; {hint}")

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Document:
    """One records document and who brought it."""

    text: Text
    origin: str  # "built in", a file name, or a package


class LazyRecords(Mapping[str, SpeculatorRecord]):
    """Records by name, each built when it is first asked for."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._built: dict[str, SpeculatorRecord] = {}

    def __getitem__(self, name: str) -> SpeculatorRecord:
        if name not in self._built:
            self._built[name] = self._registry._build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.owners)

    def __len__(self) -> int:
        return len(self._registry.owners)

    def __contains__(self, name: object) -> bool:
        return name in self._registry.owners


@dataclass(frozen=True)
class Registry:
    """All records: ``with_record`` and ``with_file`` return a new registry and leave this one alone."""

    documents: tuple[Document, ...]
    owners: Mapping[str, Document] = field(default_factory=dict)  # record name -> who brought it

    @cached_property
    def records(self) -> Mapping[str, SpeculatorRecord]:
        """Every speculator by its canonical name."""
        return LazyRecords(self)

    @cached_property
    def targets(self) -> Mapping[str, TargetRecord]:
        """Every target record by name."""
        found: dict[str, TargetRecord] = {}
        for document in self.documents:
            for name, raw in (document.text.value.get("targets") or {}).items():
                found[name] = build.make_target(name, raw or {}, document.text, self._sets["rule_sets"])
        return found

    @cached_property
    def fact_sets(self) -> Mapping[str, Mapping[str, Any]]:
        """Named sets of facts that several checkpoints share."""
        sets = self._sets["fact_sets"]
        return {
            name: {key: build.make_fact(key, entry) for key, entry in group.items()} for name, group in sets.items()
        }

    @cached_property
    def known(self) -> Mapping[str, KnownFamily]:
        """Checkpoint families that are recognised and refused with a message."""
        return {name: build.make_known(name, raw) for name, raw in self._section("known").items()}

    @cached_property
    def features(self) -> Mapping[str, Feature]:
        """Engine features of the compatibility table."""
        return {name: build.make_feature(name, raw) for name, raw in self._section("features").items()}

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """Typed names that expressions of any record may use."""
        return build.make_variables(self._section("variables"))

    def scope(self, name: str) -> Scope:
        """What the expressions of a record may use; compiled expressions are kept."""
        if name not in self._scopes:
            from specdec.config.language.expressions import record_scope

            self._scopes[name] = record_scope(self.records[name], self.variables)
        return self._scopes[name]

    @cached_property
    def identity_scope(self) -> Scope:
        """What ``declares`` may use: the facts of the set ``identity``."""
        from specdec.config.language.expressions import identity_scope

        return identity_scope(self.fact_sets["identity"], self.variables)

    @cached_property
    def aliases(self) -> Mapping[str, tuple[str, Alias]]:
        """Every other name, in lower case -> (record name, alias)."""
        found: dict[str, tuple[str, Alias]] = {}
        for name, document in self.owners.items():
            raw = document.text.value["speculators"][name] or {}
            for alias, spec in (raw.get("aliases") or {}).items():
                found[alias.lower()] = (name, build._alias(alias, spec))
        return found

    def resolve_name(self, name: str) -> tuple[SpeculatorRecord, Alias | None]:
        """The record for a name or alias; case does not matter for aliases nor for names."""
        if name in self.owners:
            return self.records[name], None
        lowered = name.lower()
        if lowered in self.aliases:
            record, alias = self.aliases[lowered]
            return self.records[record], alias
        if lowered in self.owners:
            return self.records[lowered], Alias(name, note=f"written {lowered!r}")
        names = tuple(self.owners)
        import difflib

        near = difflib.get_close_matches(lowered, [*names, *self.aliases], n=3, cutoff=0.6)
        raise UnknownSpeculatorError(name, tuple(near), names)

    def with_file(self, path: str | Path) -> Registry:
        """This registry and the records of a file; raises ``RecordError`` for the first problem of the file."""
        text = records_text.read(path)
        return self.with_document(Document(text, str(path)))

    def with_record(self, record: Mapping[str, Any], origin: str = "register_speculator") -> Registry:
        """This registry and one record, or one records document, given as plain data."""
        document = record if "speculators" in record else {"schema_version": 1, "speculators": _named(record)}
        return self.with_document(Document(records_text.from_value(document, origin), origin))

    def with_document(self, document: Document) -> Registry:
        """This registry and one more document; names that clash are refused, the same record twice is fine."""
        from specdec.config.records.check import findings, first_problem

        first_problem(document.text)
        fresh: dict[str, Document] = {}
        for name, raw in (document.text.value.get("speculators") or {}).items():
            owner = self.owners.get(name)
            if owner is None:
                fresh[name] = document
            elif owner.text.value["speculators"][name] != raw:
                _clash(name, owner, document)
        for name, raw in (document.text.value.get("speculators") or {}).items():
            for alias in ((raw or {}).get("aliases") or {}) if name in fresh else ():
                taken = self.aliases.get(alias.lower(), (None,))[0] or (alias if alias in self.owners else None)
                if taken is not None:
                    _clash(alias, self.owners[taken], document)
            lowered = self.aliases.get(name.lower())
            if name in fresh and lowered:
                _clash(name, self.owners[lowered[0]], document)
        if not fresh and not document.text.value.get("targets"):
            return self
        larger = Registry((*self.documents, document), {**self.owners, **fresh})
        for problem in findings(document.text, larger):  # so that a broken record fails here, with its source
            raise RecordError(problem.code, f"{problem.path}: {problem.message}", problem.source, problem.fix or "")
        return larger

    @cached_property
    def _scopes(self) -> dict[str, Scope]:
        return {}

    @cached_property
    def _sets(self) -> dict[str, dict[str, dict[str, Entry]]]:
        sets: dict[str, dict[str, dict[str, Entry]]] = {"option_sets": {}, "fact_sets": {}, "rule_sets": {}}
        for document in self.documents:
            for kind, groups in read_sets(document.text).items():
                sets[kind].update(groups)
        return sets

    def _section(self, name: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for document in self.documents:
            merged = deep_merge(merged, document.text.value.get(name) or {})
        return merged

    def _merged(self, name: str, below: tuple[str, ...] = ()) -> Merged:
        document = self.owners[name]
        raw = document.text.value["speculators"][name] or {}
        parent_name = raw.get("extends")
        if parent_name is None:
            return merge(name, document.text, self._sets, None)
        source = document.text.source(("speculators", name, "extends"))
        if parent_name not in self.owners:
            names = ", ".join(self.owners)
            raise RecordError(
                "unknown-record", f"extends {parent_name!r}, but there is only: {names}", source, "name a record"
            )
        if parent_name in (*below, name):
            raise RecordError(
                "extends-cycle", f"{name!r} extends itself through {parent_name!r}", source, "break the cycle"
            )
        parent = self._merged(parent_name, (*below, name))
        result = merge(name, document.text, self._sets, parent)
        result.extends = (parent_name, *parent.extends)
        return result

    @cached_property
    def _specializations(self) -> dict[str, list[Any]]:
        children = {}
        for name, document in self.owners.items():
            raw = document.text.value["speculators"][name] or {}
            declares = (raw.get("checkpoint") or {}).get("declares", "false")
            children[name] = {
                parent: declares if when == "declares" else when
                for parent, when in (raw.get("specializes") or {}).items()
            }
        return build.specializations(children)

    def _build(self, name: str) -> SpeculatorRecord:
        if name not in self.owners:
            raise KeyError(name)
        from dataclasses import replace

        document = self.owners[name]
        source = document.text.source(("speculators", name))
        record = build.make_record(name, self._merged(name), source, document.origin)
        return replace(record, specializations=tuple(self._specializations.get(name, ())))


def _named(record: Mapping[str, Any]) -> dict[str, Any]:
    raw = dict(record)
    name = raw.pop("name", None)
    if not isinstance(name, str):
        raise RecordError("record-name", "a record given as data needs a 'name'", None, "add name: my_method")
    return {name: raw}


def _clash(name: str, owner: Document, document: Document) -> None:
    message = f"{name!r} is already defined by {owner.origin} ({owner.text.name}); {document.text.name} defines it differently"
    source = document.text.source(("speculators", name))
    raise RecordError("record-clash", message, source, "rename the record")


@lru_cache(maxsize=1)
def builtin() -> Registry:
    """The records that ship with specdec; raises ``RecordError`` when somebody edited them and they have a fault."""
    text = read_indexed()
    if text is None:
        from specdec.config.read.source import SourceError
        from specdec.config.read.validator import violations

        try:
            text = records_text.read(data_file(RECORDS))
        except SourceError as error:
            found = error.diagnostic
            raise RecordError(found.code, found.message, found.source, found.fix or "") from None
        if text.diagnostics or any(violations(build.schema(), text.value, build.schema())):
            from specdec.config.records.check import first_problem

            first_problem(text)  # which looks again, with the package that words what it finds
    document = Document(text, "built in")
    return Registry((document,), {name: document for name in text.value["speculators"]})


_registered: list[Document] = []


def register_speculator(record: Mapping[str, Any] | str | Path) -> Registry:
    """Add a record for this process: plain data with a ``name``, a records document, or the path of a records file.

    Returns the registry that then counts. Raises ``RecordError`` for a fault or a clash, naming both sources;
    the same record twice is fine.
    """
    before = current()
    after = before.with_file(record) if isinstance(record, (str, Path)) else before.with_record(record)
    if after is not before:
        _registered.append(after.documents[-1])
        _current.cache_clear()
        _installed.cache_clear()
    return current()


def current() -> Registry:
    """The built-in records and those registered in this process."""
    return _current()


def installed() -> Registry:
    """``current`` and the records of installed packages; packages with a fault are left out, see ``installed_problems``."""
    return _installed()[0]


def installed_problems() -> tuple[Diagnostic, ...]:
    """What is wrong with the records of installed packages."""
    return _installed()[1]


@lru_cache(maxsize=1)
def _current() -> Registry:
    registry = builtin()
    for document in _registered:
        registry = registry.with_document(document)
    return registry


@lru_cache(maxsize=1)
def _installed() -> tuple[Registry, tuple[Diagnostic, ...]]:
    if not packages_may_bring_records():
        return current(), ()
    from specdec.config.records.third_party import extend

    registry, problems = extend(current())
    return registry, tuple(problems)
