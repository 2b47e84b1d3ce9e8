"""The JSON Schema of configuration files, generated from the records.

Only keywords that mean the same in draft-07 and 2020-12 are used, no ``oneOf`` or ``anyOf``: the branch is chosen by
``method`` with ``if``/``then``, so that each fault is reported at its own place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.language.record import OptionSpec, SpeculatorRecord
from specdec.config.records.data_files import made_from
from specdec.config.records.sections import raw_sections
from specdec.config.schema.known import METHOD_PREFIX

SCHEMA_VERSION = 1
K = "num_speculative_tokens"
_K_SUMMARY = "Tokens drafted per round; not the verify width (one more), not the trained block size."
_SECTIONS = {
    "target": "The large model whose distribution the output has.",
    "engine": "Limits and placement of the engine that runs the target.",
    "sampling": "Sampling parameters of requests that bring none of their own.",
}


def build_schema(registry: Any) -> dict[str, Any]:
    """The schema of configurations for the records of ``registry``."""
    records = {name: registry.records[name] for name in registry.records}
    shared = _Shared()
    methods = {METHOD_PREFIX + name: _method(record, shared) for name, record in records.items()}
    definitions = {
        "speculator": _speculator(records),
        "any_method": _any_method(records, shared),
        **methods,
        **shared.definitions,
    }
    properties: dict[str, Any] = {
        "$schema": {"type": "string", "description": "This schema, for editors that read JSON."},
        "schema_version": {
            "type": ["integer", "null"],
            "enum": [SCHEMA_VERSION, None],
            "default": SCHEMA_VERSION,
            "description": "Version of this file format; 'specdec migrate' rewrites older files.",
        },
        "target": {},
        "speculative": {
            "title": "speculative",
            "description": "How tokens are drafted: one speculator, or a list of speculators in order of priority.",
            "if": {"type": "array"},
            "then": {"minItems": 1, "items": {"$ref": "#/definitions/speculator"}},
            "else": {"$ref": "#/definitions/speculator"},
        },
        "engine": {},
        "sampling": {},
        "records": {
            "type": ["array", "null"],
            "items": {"type": "string", "minLength": 1},
            "description": "Files with records of your own, relative to this file.",
            "examples": [["my_records.yaml"]],
        },
        "metadata": {"description": "Free for your own notes; not read."},
    }
    for section, summary in _SECTIONS.items():
        fields = {name: _field(name, raw) for name, raw in raw_sections()[section].items()}
        properties[section] = {
            "title": section,
            "description": summary,
            "type": ["object", "null"],
            "properties": fields,
            "additionalProperties": False,
        }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "specdec configuration",
        "description": "Speculative decoding of one target. Generated from the records; do not edit.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": definitions,
    }


def schema_text(registry: Any) -> str:
    """The schema as it is printed."""
    return json.dumps(build_schema(registry), indent=1, ensure_ascii=False) + "\n"


def shipped_schema_text(registry: Any) -> str:
    """The schema of the built-in records as it is kept in the repository: it also says what it was made from."""
    made = {"made_from": made_from()}
    return json.dumps({"x-specdec": made, **build_schema(registry)}, indent=1, ensure_ascii=False) + "\n"


def option_schema(option: OptionSpec, nullable: bool = True) -> dict[str, Any]:
    """The schema of one option; with ``nullable`` an explicit null is allowed and means absent."""
    types = list(dict.fromkeys([*option.types, "null"] if nullable else option.types))
    part: dict[str, Any] = {"title": option.name, "description": _describe(option)}
    if "any" not in types:
        part["type"] = types if len(types) > 1 else types[0]
    part |= _enum(option, types)
    for keyword, value in (
        ("minimum", option.minimum),
        ("maximum", option.maximum),
        ("exclusiveMinimum", option.exclusive_minimum),
    ):
        if value is not None:
            part[keyword] = value
    if option.items is not None and "method" in option.items.get("properties", {}):  # a list of speculators
        part |= {"items": {"$ref": "#/definitions/speculator"}, "minItems": 1, "x-specdec": {"chain": True}}
    elif option.items is not None:
        part["items"] = _plain(option.items)
    if option.properties is not None:
        part["properties"] = {name: _nullable(_plain(inner)) for name, inner in option.properties.items()}
        part["additionalProperties"] = False
    if option.default is not None:
        part["default"] = _plain(option.default)
    if option.examples:
        part["examples"] = _plain(option.examples)
    return part


def _speculator(records: Mapping[str, SpeculatorRecord]) -> dict[str, Any]:
    """A speculator's block: ``method`` picks the branch; without a (known) method any method's options are allowed."""
    names = [n for name in records for n in method_names(records[name])]
    known = {"properties": {"method": {"enum": names}}, "required": ["method"]}
    titles = "; ".join(f"{name}: {record.title}" for name, record in records.items())
    return {
        "type": "object",
        "properties": {
            "method": {
                "title": "method",
                "type": ["string", "null"],
                "enum": [*names, None],
                "description": f"The speculator; absent means what the draft checkpoint declares. {titles}",
                "examples": ["ngram"],
            }
        },
        "allOf": [
            *(
                {
                    "if": {"properties": {"method": {"enum": method_names(record)}}, "required": ["method"]},
                    "then": {"$ref": f"#/definitions/{METHOD_PREFIX}{name}"},
                }
                for name, record in records.items()
            ),
            {"if": known, "else": {"$ref": "#/definitions/any_method"}},
        ],
    }


def method_names(record: SpeculatorRecord) -> list[str]:
    """Every name of a record: its own first."""
    return list(dict.fromkeys([record.name, *(alias.name for alias in record.aliases)]))


def _method(record: SpeculatorRecord, shared: _Shared) -> dict[str, Any]:
    deprecated = {a.name: f"; {a.note}" if a.note else "" for a in record.aliases if a.deprecated}
    part = {
        "title": record.title,
        "description": record.summary,
        "properties": {"method": {}, **{name: shared.ref(name, option) for name, option in _options(record).items()}},
        "additionalProperties": False,
        "x-specdec": {"names": method_names(record), "deprecated": deprecated},
    }
    required = [name for name, option in record.options.items() if option.required]
    return part | ({"required": required} if required else {})


def _options(record: SpeculatorRecord) -> dict[str, Any]:
    found = {name: option_schema(option) for name, option in record.options.items()}
    found.setdefault(K, option_schema(OptionSpec(K, ("integer",), _K_SUMMARY, minimum=1, unit="drafted tokens")))
    for name, option in record.options.items():
        for alias in option.aliases:
            text = f"Another spelling of {name}."
            found.setdefault(
                alias, {**found[name], "title": alias, "description": text, "x-specdec": {"alias_of": name}}
            )
    return found


class _Shared:
    """Options that several methods have, written once under ``definitions``."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def ref(self, name: str, part: dict[str, Any]) -> dict[str, str]:
        number = 1
        key = f"option_{name}"
        while self.definitions.setdefault(key, part) != part:
            number += 1
            key = f"option_{name}_{number}"
        return {"$ref": f"#/definitions/{key}"}


def _any_method(records: Mapping[str, SpeculatorRecord], shared: _Shared) -> dict[str, Any]:
    """The options of all methods; where methods differ, whatever one of them allows."""
    merged: dict[str, Any] = {}
    for record in records.values():
        for name, part in _options(record).items():
            merged[name] = _loosest(merged[name], part) if name in merged else part
    return {
        "title": "Any method",
        "description": "Options of all methods: those of the method that the checkpoint declares are read, others are refused.",
        "properties": {"method": {}, **{name: shared.ref(name, part) for name, part in merged.items()}},
        "additionalProperties": False,
    }


def _loosest(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    if {k: v for k, v in one.items() if k != "default"} == {k: v for k, v in other.items() if k != "default"}:
        return {k: v for k, v in one.items() if k != "default" or v == other.get("default")}
    part: dict[str, Any] = {"title": one.get("title"), "description": one.get("description")}
    if "type" in one and "type" in other:
        part["type"] = list(dict.fromkeys([*_list(one["type"]), *_list(other["type"])]))
    if "enum" in one and "enum" in other:
        part["enum"] = list(dict.fromkeys([*one["enum"], *other["enum"]]))
    for keyword, pick in (("minimum", min), ("exclusiveMinimum", min), ("maximum", max)):
        if keyword in one and keyword in other:
            part[keyword] = pick(one[keyword], other[keyword])
    for keyword in ("items", "properties", "additionalProperties", "x-specdec", "if", "then"):
        if keyword in one and one.get(keyword) == other.get(keyword):
            part[keyword] = one[keyword]
    return part


def _field(name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    types = [*_list(raw["type"]), "null"]
    part: dict[str, Any] = {"title": name, "description": raw["summary"]}
    if "unit" in raw:
        part["description"] += f" Unit: {raw['unit']}."
    part["type"] = types
    if "enum" in raw:
        part["enum"] = [*raw["enum"], None]
    for keyword in (
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "minLength",
        "items",
        "properties",
        "default",
        "examples",
    ):
        if keyword in raw:
            part[keyword] = raw[keyword]
    return part


def _describe(option: OptionSpec) -> str:
    text = option.summary.rstrip()
    if option.unit:
        text += f" Unit: {option.unit}."
    if option.reason:
        text += f" Default: {option.reason}"
    return text if option.status == "stable" else f"{text} ({option.status})"


def _enum(option: OptionSpec, types: list[str]) -> dict[str, Any]:
    if option.enum is None:
        return {}
    choices = list(option.enum)
    if all(isinstance(c, str) for c in choices if c is not None) and set(types) - {"string", "null"}:
        words = [c for c in choices if c is not None]  # a number, or one of some words
        return {"if": {"type": "string"}, "then": {"enum": words}, "x-specdec": {"words": words}}
    return {"enum": list(dict.fromkeys([*choices, None])) if "null" in types else choices}


def _nullable(part: dict[str, Any]) -> dict[str, Any]:
    """The schema that also allows null, which means absent."""
    if "type" not in part:
        return part
    more: dict[str, Any] = {"type": list(dict.fromkeys([*_list(part["type"]), "null"]))}
    if "enum" in part:
        more["enum"] = list(dict.fromkeys([*part["enum"], None]))
    return part | more


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value
