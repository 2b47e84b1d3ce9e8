"""Applies the rewrite rows of a record to a config: model types, architectures, promoted sub-configs, as data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.checkpoint.facts.keys import assign, lookup
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.language.record import RewriteSpec


def rewrite(config: Mapping[str, Any], rewrites: Iterable[RewriteSpec]) -> tuple[dict[str, Any], list[str]]:
    """A deep copy with every matching row applied in order, later rows seeing earlier results, and what was done.

    Raises CheckpointFault when a row's own check fails.
    """
    original = config
    current: dict[str, Any] = copy.deepcopy(dict(config))
    trace: list[str] = []
    for row in rewrites:
        if not matches(row.when, current, original):
            continue
        before, current = current, copy.deepcopy(current)
        for check in row.errors:
            if matches(check.get("when", {}), before, original):
                raise CheckpointFault(str(check["message"]), code=str(check.get("code", "checkpoint-contract")))
        if row.promote and isinstance(before.get(row.promote), Mapping):
            current = copy.deepcopy(dict(before[row.promote]))
            current.setdefault("architectures", copy.deepcopy(before.get("architectures")))
            trace.append(f"{row.promote} promoted to the top level")
        for key, source in row.copy.items():
            if (value := lookup(before, source)) is not None:
                assign(current, key, copy.deepcopy(value))
                trace.append(f"{key} <- {source}")
        for key, value in row.set.items():
            new = _value(value, before)
            if new is not None or value is None:
                assign(current, key, new)
                trace.append(f"{key} = {new!r}")
        for key, rule in row.append.items():
            extended = _extended(lookup(before, key), rule, before)
            assign(current, key, extended)
            trace.append(f"{key} has {len(extended)} entries")
        if row.n_predict is not None:
            current["n_predict"] = _n_predict(row.n_predict, before)
            trace.append(f"n_predict = {current['n_predict']!r}")
        if row.final:
            break
    return current, trace


def matches(when: Mapping[str, Any], config: Mapping[str, Any], original: Mapping[str, Any] | None = None) -> bool:
    """Whether every condition holds: model_type, model_type_contains, architecture, initial_architecture, has, lacks, positive, equals."""
    return all(_holds(name, wanted, config, original or config) for name, wanted in when.items())


def predicts(rewrites: Iterable[RewriteSpec], config: Mapping[str, Any]) -> bool:
    """Whether a row that applies states a positive number of predicted tokens, by a constant, a key or its default."""
    return any(
        (_n_predict(row.n_predict, config) or 0) > 0
        for row in rewrites
        if row.n_predict is not None and matches(row.when, config)
    )


def _holds(name: str, wanted: Any, config: Mapping[str, Any], original: Mapping[str, Any]) -> bool:
    if name == "model_type":
        return config.get("model_type") in _listed(wanted)
    if name == "model_type_contains":
        return any(part in str(config.get("model_type") or "") for part in _listed(wanted))
    if name in ("architecture", "initial_architecture"):
        return _first_architecture(config if name == "architecture" else original) in _listed(wanted)
    if name == "has":
        return all(lookup(config, key) is not None for key in _listed(wanted))
    if name == "lacks":
        return all(lookup(config, key) is None for key in _listed(wanted))
    if name == "positive":
        return all(_positive(lookup(config, key)) for key in _listed(wanted))
    if name == "not_positive":
        return not any(_positive(lookup(config, key)) for key in _listed(wanted))
    if name == "equals":
        return all(lookup(config, key) == value for key, value in wanted.items())
    if name == "any":
        return any(matches(option, config, original) for option in wanted)
    raise ValueError(f"unknown condition {name!r} in a rewrite row")


def _value(value: Any, config: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and "from" in value:
        for key in _listed(value["from"]):
            if (found := lookup(config, key)) is not None:
                return copy.deepcopy(found)
        return value.get("default")
    return copy.deepcopy(value)


def _extended(existing: Any, rule: Mapping[str, Any], config: Mapping[str, Any]) -> list[Any]:
    """The list at a key, longer by the list at ``rule.key``, or by ``rule.fill`` repeated."""
    more = lookup(config, str(rule["key"])) if "key" in rule else None
    count = lookup(config, str(rule.get("count", ""))) if "count" in rule else None
    if more is None:
        more = [rule.get("fill")] * (count if type(count) is int else int(rule.get("default_count", 1)))
    elif count is not None and len(more) != count:
        raise CheckpointFault(
            f"{rule['key']} has {len(more)} entries but {rule['count']} is {count}", code="checkpoint-contract"
        )
    return [*(existing if isinstance(existing, (list, tuple)) else ()), *more]


def _n_predict(rule: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    if "constant" in rule:
        return int(rule["constant"])
    for key in _listed(rule.get("key", ())):
        if (value := lookup(config, key)) is not None:
            return value if type(value) is int else None
    default = rule.get("default")
    return None if default is None else int(default)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _first_architecture(config: Mapping[str, Any]) -> str | None:
    architectures = config.get("architectures")
    return architectures[0] if isinstance(architectures, (list, tuple)) and architectures else None


def _positive(value: Any) -> bool:
    return type(value) is int and value > 0
