"""The expressions of records that are asked about a checkpoint; what a checkpoint does not say makes them false."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.config.language.expressions import ExpressionError, Scope, identity_scope
from specdec.config.records.registry import Registry

IDENTITY_FACTS = "identity"  # the fact set that every draft checkpoint is read with before a method is chosen


def declares_scope(registry: Registry) -> Scope:
    """The names that ``declares`` and ``accepts`` may use, kept with the registry so that each compiles once."""
    cache: dict[str, Any] = registry.__dict__
    if "_declares_scope" not in cache:
        cache["_declares_scope"] = identity_scope(registry.fact_sets.get(IDENTITY_FACTS, {}), registry.variables)
    scope: Scope = cache["_declares_scope"]
    return scope


def target_scope(registry: Registry) -> Scope:
    """The names that expressions about a target may use."""
    cache: dict[str, Any] = registry.__dict__
    if "_target_scope" not in cache:
        names = {name: v for name, v in registry.variables.items() if name.startswith("target.")}
        cache["_target_scope"] = Scope({name: v.type for name, v in names.items()})
    scope: Scope = cache["_target_scope"]
    return scope


def holds(scope: Scope, expression: str, values: Mapping[str, Any]) -> bool:
    """Whether the boolean holds; false when it cannot be decided."""
    try:
        return scope.holds(expression, values) is True
    except ExpressionError:
        return False


def integer(scope: Scope, expression: str, values: Mapping[str, Any]) -> int | None:
    """The value of an integer expression, or None."""
    try:
        value = scope.evaluate(expression, values)
    except ExpressionError:
        return None
    return value if type(value) is int else None
