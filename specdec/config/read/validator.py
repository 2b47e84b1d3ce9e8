"""The part of JSON Schema that ``build_schema`` and the schema of records use, as violations with their path.

A test compares it with the jsonschema package, which takes longer to import than a file takes to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from specdec.config.findings.paths import Step


class Violation(NamedTuple):
    """A value that its schema does not allow: ``keyword`` is the rule, ``wanted`` what the rule says."""

    path: tuple[Step, ...]
    keyword: str
    wanted: Any
    value: Any
    schema: Mapping[str, Any]


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: (
        (isinstance(v, int) and not isinstance(v, bool))
        or (isinstance(v, float) and v.is_integer() and abs(v) < 2.0**63)
    ),
}
_LEAF: dict[
    str, tuple[str, Callable[[Any, Any], bool]]
] = {  # keyword -> (type it applies to, whether the value is fine)
    "minimum": ("number", lambda v, limit: v >= limit),
    "maximum": ("number", lambda v, limit: v <= limit),
    "exclusiveMinimum": ("number", lambda v, limit: v > limit),
    "exclusiveMaximum": ("number", lambda v, limit: v < limit),
    "minLength": ("string", lambda v, limit: len(v) >= limit),
    "maxLength": ("string", lambda v, limit: len(v) <= limit),
    "pattern": ("string", lambda v, form: re.search(form, v) is not None),
    "minItems": ("array", lambda v, limit: len(v) >= limit),
    "maxItems": ("array", lambda v, limit: len(v) <= limit),
    "uniqueItems": ("array", lambda v, on: not on or not any(same(a, b) for i, a in enumerate(v) for b in v[:i])),
    "minProperties": ("object", lambda v, limit: len(v) >= limit),
    "required": ("object", lambda v, names: all(name in v for name in names)),
}
_SILENT = frozenset(  # annotations, and keywords that are read together with another one
    [
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "definitions",
        "properties",
        "then",
        "else",
        "deprecated",
        "x-specdec",
    ]
)


def violations(
    schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], path: tuple[Step, ...] = ()
) -> Iterator[Violation]:
    """Every violation of ``schema`` by ``value``, outer values first; ``root`` holds the definitions."""
    while "$ref" in schema:  # as in draft-07, nothing beside a $ref counts
        schema = resolve(schema["$ref"], root)
    for keyword, wanted in schema.items():
        leaf = _LEAF.get(keyword)
        if leaf is not None:
            if _TYPES[leaf[0]](value) and not leaf[1](value, wanted):
                yield Violation(path, keyword, wanted, value, schema)
        elif keyword == "type":
            if not any(_TYPES[t](value) for t in ([wanted] if isinstance(wanted, str) else wanted)):
                yield Violation(path, keyword, wanted, value, schema)
        elif keyword == "enum":
            if not any(same(value, choice) for choice in wanted):
                yield Violation(path, keyword, wanted, value, schema)
        elif keyword == "const":
            if not same(value, wanted):
                yield Violation(path, keyword, wanted, value, schema)
        elif keyword not in _SILENT:
            yield from _applied(keyword, wanted, schema, value, root, path)
    if isinstance(value, dict) and "properties" in schema:
        for name, part in schema["properties"].items():
            if name in value:
                yield from violations(part, value[name], root, (*path, name))


def _applied(
    keyword: str, wanted: Any, schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], path: tuple[Step, ...]
) -> Iterator[Violation]:
    """Keywords that apply other schemas."""
    if keyword == "items":
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from violations(wanted, item, root, (*path, i))
    elif keyword == "additionalProperties":
        known = schema.get("properties", {})
        extra = [name for name in value if name not in known] if isinstance(value, dict) else []
        if wanted is False and extra:
            yield Violation(path, keyword, wanted, value, schema)
        elif isinstance(wanted, dict):
            for name in extra:
                yield from violations(wanted, value[name], root, (*path, name))
    elif keyword == "propertyNames":
        for name in value if isinstance(value, dict) else ():
            yield from violations(wanted, name, root, path)
    elif keyword == "allOf":
        for part in wanted:
            yield from violations(part, value, root, path)
    elif keyword == "if":
        holds = next(violations(wanted, value, root, path), None) is None
        yield from violations(schema.get("then" if holds else "else", {}), value, root, path)
    else:  # a keyword that only a record of someone else uses
        from jsonschema import Draft7Validator

        for error in Draft7Validator({keyword: wanted}).iter_errors(value):
            at = (*path, *error.absolute_path)
            yield Violation(at, str(error.validator), error.validator_value, error.instance, schema)


def resolve(ref: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition that ``#/definitions/name`` names."""
    part: Mapping[str, Any] = root["definitions"][ref.removeprefix("#/definitions/")]
    return part


def same(a: Any, b: Any) -> bool:
    """Equality of JSON Schema: 1 is 1.0, but true is not 1."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
