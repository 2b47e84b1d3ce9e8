"""The fields of ``target:``, ``engine:`` and ``sampling:``, as data; those of ``speculative:`` are in the records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from specdec.config.language.record import OptionSpec
from specdec.config.records.index import sections_file

SHARED = "shared"  # fields that may stand in target: or in engine:


@lru_cache(maxsize=1)
def raw_sections() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """``sections.yaml`` as plain data, shared fields copied into ``target`` and ``engine``."""
    data = sections_file()
    shared = data[SHARED]
    return {
        "target": {**data["target"], **shared},
        "engine": {**data["engine"], **shared},
        "sampling": data["sampling"],
    }


@lru_cache(maxsize=1)
def shared_fields() -> frozenset[str]:
    """Names that mean the same in ``target:`` and in ``engine:``."""
    return frozenset(sections_file()[SHARED])


@lru_cache(maxsize=1)
def section_fields() -> Mapping[str, Mapping[str, OptionSpec]]:
    """Section -> field -> its specification; an explicit null is allowed everywhere and means absent."""
    return {name: {key: _field(key, spec) for key, spec in fields.items()} for name, fields in raw_sections().items()}


def _field(name: str, spec: Mapping[str, Any]) -> OptionSpec:
    types = spec["type"] if isinstance(spec["type"], list) else [spec["type"]]
    return OptionSpec(
        name=name,
        types=(*types, "null"),
        summary=spec["summary"],
        default=spec.get("default"),
        enum=tuple(spec["enum"]) if "enum" in spec else None,
        minimum=spec.get("minimum"),
        maximum=spec.get("maximum"),
        exclusive_minimum=spec.get("exclusiveMinimum"),
        items=spec.get("items"),
        properties=spec.get("properties"),
        unit=spec.get("unit"),
        examples=tuple(spec.get("examples", ())),
        engines=spec.get("engines") or {},
    )
