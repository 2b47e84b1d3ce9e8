"""Checks of a records file: syntax, schema, what it extends and uses, and the types of every expression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import format_path
from specdec.config.language.expressions import ExpressionError, Scope, identity_scope, placeholders, record_scope
from specdec.config.read.source import SourceError
from specdec.config.records import text as records_text
from specdec.config.records.extends import RecordError
from specdec.config.records.parse import schema
from specdec.config.records.registry import Document, Registry, builtin
from specdec.config.records.sections import section_fields
from specdec.config.records.text import Text

_Path = tuple[Any, ...]


def check_file(path: str | Path) -> list[Diagnostic]:
    """Every finding; an empty list means that the records can be used."""
    try:
        text = records_text.read(path)
    except SourceError as error:
        return [error.diagnostic]
    return check_text(text)


def check_text(text: Text) -> list[Diagnostic]:
    """Every finding in a document that could be read."""
    found = [*text.diagnostics, *_against_schema(text)]
    if found:
        return found
    try:
        registry = _registry_with(text)
    except RecordError as error:
        return [_diagnostic(error)]
    return findings(text, registry)


def findings(text: Text, registry: Registry) -> list[Diagnostic]:
    """What is wrong with the records of ``text`` inside ``registry``, which holds them."""
    found: list[Diagnostic] = []
    for name in text.value.get("speculators") or {}:
        try:
            record = registry.records[name]
        except RecordError as error:
            found.append(_diagnostic(error))
            continue
        found += _record_expressions(text, name, record_scope(record, registry.variables), registry)
        found += _inherited(text, name, registry)
        found += _record_values(text, name, record, registry)
    return found or list(_other_expressions(text, registry))


def first_problem(text: Text) -> None:
    """Raise ``RecordError`` for the first syntax or schema problem of a document."""
    for problem in (*text.diagnostics, *_against_schema(text)):
        raise RecordError(
            problem.code, f"{problem.path}: {problem.message}".lstrip(": "), problem.source, problem.fix or ""
        )


def _registry_with(text: Text) -> Registry:
    document = Document(text, text.name)
    owners = {name: document for name in text.value.get("speculators") or {}}
    if "variables" in text.value:  # a complete set of records, such as the built-in ones
        return Registry((document,), owners)
    base = builtin()
    return Registry((*base.documents, document), {**base.owners, **owners})


def _against_schema(text: Text) -> Iterator[Diagnostic]:
    from jsonschema import Draft7Validator

    if not isinstance(text.value, Mapping):
        source = text.source(())
        yield Diagnostic(
            "wrong-type",
            "error",
            "",
            "a records file is a map with schema_version and speculators",
            "see the docs",
            source,
        )
        return
    for error in sorted(
        Draft7Validator(schema()).iter_errors(text.value), key=lambda e: [str(p) for p in e.absolute_path]
    ):
        yield from _schema_finding(text, error)


def _schema_finding(text: Text, error: Any) -> Iterator[Diagnostic]:
    from specdec.config.findings.suggest import nearest

    path: _Path = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = error.schema.get("properties", {})
        for key in error.instance:
            if key not in known:
                near = nearest(str(key), known)
                fix = f"write {near}" if near else "use one of: " + ", ".join(known)
                message = f"unknown key '{key}'" + (f"; did you mean '{near}'?" if near else "")
                yield Diagnostic(
                    "unknown-key", "error", format_path((*path, key)), message, fix, text.source((*path, key))
                )
    elif error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        message = f"missing: {', '.join(missing)}"
        yield Diagnostic(
            "missing-required", "error", format_path(path), message, f"add {missing[0]}", text.source(path)
        )
    else:
        allowed = error.schema.get("description") or error.validator
        shown = str(error.instance) if len(str(error.instance)) <= 60 else str(error.instance)[:57] + "..."
        if error.validator in ("enum", "const"):
            values = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
            message, fix = f"'{shown}' is not allowed", "use one of: " + ", ".join(str(v) for v in values)
        else:
            message, fix = (
                f"'{shown}' does not fit: {error.message if len(error.message) < 120 else error.validator}",
                str(allowed),
            )
        code = "wrong-type" if error.validator == "type" else "wrong-value"
        yield Diagnostic(code, "error", format_path(path), message, fix, text.value_source(path))


def _diagnostic(error: RecordError) -> Diagnostic:
    return Diagnostic(error.code, "error", "speculators", error.message, error.fix or None, error.source)


def _expressions(raw: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, str, str]]:
    """Every expression of a raw speculator: where, the text, and the type it must have."""
    for name, flag in (raw.get("capabilities") or {}).items():
        for i, rule in enumerate(flag.get("except") or () if isinstance(flag, Mapping) else ()):
            yield (*path, "capabilities", name, "except", i, "when"), rule["when"], "bool"
    for name, default in (raw.get("defaults") or {}).items():
        if isinstance(default, Mapping) and "expr" in default:
            yield (*path, "defaults", name, "expr"), default["expr"], "any"
    for name, expression in (raw.get("derive") or {}).items():
        yield (*path, "derive", name), expression, "int"
    for name, expression in (raw.get("resources") or {}).items():
        yield (*path, "resources", name), expression, "int"
    for name, entry in (raw.get("compatibility") or {}).items():
        if "when" in entry:
            yield (*path, "compatibility", name, "when"), entry["when"], "bool"
    yield from _rule_expressions((raw.get("rules") or {}).get("define") or (), (*path, "rules", "define"))


def _rule_expressions(rules: Any, path: _Path) -> Iterator[tuple[_Path, str, str]]:
    for i, rule in enumerate(rules):
        for key in ("when", "check"):
            if key in rule:
                yield (*path, i, key), rule[key], "bool"
        for key in ("message", "fix"):
            if key in rule:
                yield (*path, i, key), rule[key], "text"


def _record_expressions(text: Text, name: str, scope: Scope, registry: Registry) -> Iterator[Diagnostic]:
    raw = text.value["speculators"][name] or {}
    path: _Path = ("speculators", name)
    for where, expression, expected in _expressions(raw, path):
        yield from _check(text, where, expression, expected, scope)
    identity = identity_scope(registry.fact_sets["identity"], registry.variables)
    for key in ("declares", "accepts"):
        condition = (raw.get("checkpoint") or {}).get(key)
        if condition:
            yield from _check(text, (*path, "checkpoint", key), condition, "bool", identity)
    for parent, expression in (raw.get("specializes") or {}).items():
        where = (*path, "specializes", parent)
        if parent not in registry.owners:
            names = ", ".join(registry.owners)
            yield Diagnostic(
                "unknown-record",
                "error",
                format_path(where),
                f"there is no record '{parent}'",
                f"use one of: {names}",
                text.source(where),
            )
        elif expression != "declares":
            parent_scope = record_scope(registry.records[parent], registry.variables)
            yield from _check(text, where, expression, "bool", parent_scope)


def _inherited(text: Text, name: str, registry: Registry) -> Iterator[Diagnostic]:
    """Rules and numbers taken over must compile with this record's options and facts."""
    record = registry.records[name]
    scope = record_scope(record, registry.variables)
    raw = text.value["speculators"][name] or {}
    own = {*(raw.get("derive") or {}), *(raw.get("resources") or {})}
    source = text.source(("speculators", name))
    for rule in record.rules:
        shown = [expression for template in (rule.message, rule.fix or "") for _, expression in placeholders(template)]
        for expression in (rule.when, rule.check, *shown):
            yield from _taken_over(
                scope, expression, f"rule {rule.id}", f"drop it: rules: {{drop: [{rule.id}]}}", source
            )
    for number, formula in {**record.derive, **record.resources}.items():
        if number not in own:
            yield from _taken_over(scope, formula, number, f"state {number} in this record", source)


def _taken_over(scope: Scope, expression: str | None, what: str, fix: str, source: Source) -> Iterator[Diagnostic]:
    if expression is None:
        return
    try:
        scope.compile(expression)
    except ExpressionError as error:
        message = f"{what}, which it takes over, does not fit: {error.message}"
        yield Diagnostic(error.code, "error", "speculators", message, fix, source)


def _record_values(text: Text, name: str, record: Any, registry: Registry) -> Iterator[Diagnostic]:
    """Defaults of options must have the option's own type and range; hash factors and sources of defaults must exist."""
    from specdec.config.language.options_model import option_problem

    for option in record.options.values():
        if option.default is None:
            continue
        problem = option_problem(option, option.default)
        if problem:
            source = option.source or text.source(("speculators", name))
            message = f"the default of {option.name} does not fit: {problem}"
            yield Diagnostic(
                "wrong-value",
                "error",
                f"speculators.{name}.options.{option.name}",
                message,
                "correct the default",
                source,
            )
    types = registry.scope(name).types
    for i, factor in enumerate(record.hash_factors):
        if factor not in types:
            source = text.source(("speculators", name, "hash_factors", i))
            message = f"the hash factor {factor} is not a name of {name}"
            yield Diagnostic(
                "unknown-name",
                "error",
                f"speculators.{name}.hash_factors",
                message,
                "name an option, fact or capability",
                source,
            )
    for key, rule in record.defaults.items():
        origins = (rule.get("from") or ()) if isinstance(rule, Mapping) else ()
        for origin in [origins] if isinstance(origins, str) else origins:
            if not any(origin == known or origin.startswith(f"{known}.") for known in types):
                source = text.source(("speculators", name, "defaults", key))
                message = f"the default of {key} comes from {origin}, which is not a name of {name}"
                yield Diagnostic(
                    "unknown-name",
                    "error",
                    f"speculators.{name}.defaults.{key}",
                    message,
                    "name an option or fact",
                    source,
                )
        if key not in record.options and key.removeprefix("engine.") not in section_fields()["engine"]:
            source = text.source(("speculators", name, "defaults", key))
            message = f"there is a default for {key}, which is not an option of {name}"
            yield Diagnostic(
                "unknown-key",
                "error",
                f"speculators.{name}.defaults.{key}",
                message,
                "define the option, or remove the default",
                source,
            )


def _other_expressions(text: Text, registry: Registry) -> Iterator[Diagnostic]:
    identity = identity_scope(registry.fact_sets["identity"], registry.variables)
    everything = _widest_scope(registry)
    for name, known in (text.value.get("known") or {}).items():
        yield from _check(text, ("known", name, "declares"), known["declares"], "bool", identity)
    for name, feature in (text.value.get("features") or {}).items():
        if "when" in feature:
            yield from _check(text, ("features", name, "when"), feature["when"], "bool", everything)
    for name, target in (text.value.get("targets") or {}).items():
        for i, layer in enumerate((target or {}).get("default_aux_layers") or ()):
            yield from _check(text, ("targets", name, "default_aux_layers", i), str(layer), "int", everything)
        for where, expression, expected in _rule_expressions(
            (target or {}).get("rules") or (), ("targets", name, "rules")
        ):
            yield from _check(text, where, expression, expected, everything)
    for name, rules in (text.value.get("rule_sets") or {}).items():
        for where, expression, expected in _rule_expressions(rules, ("rule_sets", name)):
            yield from _check(text, where, expression, expected, everything)


def _widest_scope(registry: Registry) -> Scope:
    types: dict[str, str] = {}
    for record in registry.records.values():
        for name, kind in record_scope(record, registry.variables).types.items():
            types[name] = kind if types.get(name, kind) == kind else "any"
    return Scope(types)


def _check(text: Text, path: _Path, expression: str, expected: str, scope: Scope) -> Iterator[Diagnostic]:
    parts = list(placeholders(expression)) if expected == "text" else [(0, expression)]
    for offset, part in parts:
        try:
            kind = scope.compile(part).type
        except ExpressionError as error:
            source = text.value_source(path, offset + error.column - 1)
            fix = "use a declared name" if error.code == "unknown-name" else "correct the expression"
            yield Diagnostic(error.code, "error", format_path(path), error.message, fix, source)
            continue
        if expected in ("bool", "int") and kind not in (expected, "dyn"):
            words = {"bool": "true or false", "int": "an integer"}
            message = f"gives {kind}, must give {words[expected]}"
            yield Diagnostic(
                "expression-type",
                "error",
                format_path(path),
                message,
                "compare or convert the value",
                text.value_source(path, offset),
            )
