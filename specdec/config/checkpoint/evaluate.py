"""Evaluates a record's boolean about a checkpoint; what the checkpoint does not say makes it false, not an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_VARIABLE = re.compile(r"\b(?:draft|target)(?:\.[A-Za-z_]\w*)")


def holds(expression: str, draft: Mapping[str, Any], target: Mapping[str, Any] | None = None) -> bool:
    """Whether the CEL boolean holds over ``draft.<fact>`` and ``target.<fact>``."""
    return value_of(expression, draft, target) is True


def value_of(expression: str, draft: Mapping[str, Any], target: Mapping[str, Any] | None = None) -> Any:
    """The value of the expression, or None when something it needs is not known."""
    program, names = _compiled(expression)
    known = {**{f"draft.{k}": v for k, v in draft.items()}, **{f"target.{k}": v for k, v in (target or {}).items()}}
    result = program.eval(data={name: known[name] for name in names if known.get(name) is not None})
    value = result.value()
    return value if isinstance(value, (bool, int, float, str)) and "ERROR" not in str(result.type()) else None


@lru_cache(maxsize=512)
def _compiled(expression: str) -> tuple[Any, tuple[str, ...]]:
    from cel_expr_python import cel

    names = tuple(sorted(set(_VARIABLE.findall(expression))))
    return cel.NewEnv(variables={name: cel.Type.DYN for name in names}).compile(expression), names
