"""Evaluates a record's boolean about a checkpoint; what the checkpoint does not say makes it false, not an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_VARIABLE = re.compile(r"\b(?:known\.)?(?:draft|target)\.[A-Za-z_]\w*")
KNOWN = "known."  # known.draft.x: whether draft.x has a value


def holds(expression: str, draft: Mapping[str, Any], target: Mapping[str, Any] | None = None) -> bool:
    """Whether the CEL boolean holds over ``draft.<fact>`` and ``target.<fact>``."""
    return value_of(expression, draft, target) is True


def value_of(expression: str, draft: Mapping[str, Any], target: Mapping[str, Any] | None = None) -> Any:
    """The value of the expression, or None when something it needs is not known."""
    program, names = _compiled(expression)
    known = {**{f"draft.{k}": v for k, v in draft.items()}, **{f"target.{k}": v for k, v in (target or {}).items()}}
    data = {name: known[name] for name in names if known.get(name) is not None}
    data |= {name: known.get(name.removeprefix(KNOWN)) is not None for name in names if name.startswith(KNOWN)}
    result = program.eval(data=data)
    value = result.value()
    return value if isinstance(value, (bool, int, float, str)) and "ERROR" not in str(result.type()) else None


@lru_cache(maxsize=512)
def _compiled(expression: str) -> tuple[Any, tuple[str, ...]]:
    from cel_expr_python import cel

    names = tuple(sorted(set(_VARIABLE.findall(expression))))
    variables = {name: cel.Type.BOOL if name.startswith(KNOWN) else cel.Type.DYN for name in names}
    return cel.NewEnv(variables=variables).compile(expression), names
