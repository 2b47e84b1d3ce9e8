"""What ``resolve`` was given, as plain data with a place for every value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.read.omega import container, is_node
from specdec.config.read.source import MAX_DEPTH, Document, SourceError, load

Locate = Callable[[tuple[Step, ...], bool], Source | None]
API = Source("api")
_INT64 = 2**63
MAX_VALUES = 20_000  # of one configuration


@dataclass(frozen=True)
class Given:
    """The configuration as plain data; ``data`` is None when nothing of it can be used."""

    data: dict[str, Any] | None
    locate: Locate
    diagnostics: tuple[Diagnostic, ...] = ()
    folder: Path | None = None  # of the file; ``records:`` are named relative to it
    document: Document | None = field(default=None, repr=False)


def read_config(config: Any) -> Given:
    """A mapping, a path, a parsed ``Document`` or None, as ``Given``. Never raises for bad input."""
    if isinstance(config, (str, os.PathLike)):
        try:
            config = load(os.fspath(config))
        except SourceError as error:
            return Given(None, nowhere, (error.diagnostic,))
    if is_node(config):
        config, problem = container(config)
        if problem is not None:
            return Given(None, nowhere, (_unresolved(problem),))
    if isinstance(config, Document):
        folder = Path(config.name).parent if Path(config.name).suffix else None
        return _shaped(config.data, config.source, tuple(config.problems), folder, config)
    return _shaped(config, nowhere, (), None, None)


def _shaped(
    raw: Any, locate: Locate, problems: tuple[Diagnostic, ...], folder: Path | None, document: Document | None
) -> Given:
    if raw is None:
        raw = {}
    found: list[Diagnostic] = []
    data = plain(raw, found, locate)
    if not isinstance(data, dict):
        message = f"a configuration must be a mapping, not {shown(raw)}"
        found.append(
            Diagnostic("wrong-type", "error", "", message, "write 'speculative: {method: ngram}'", locate((), False))
        )
        return Given(None, locate, (*problems, *found))
    return Given(data, locate, (*problems, *found), folder, document)


def plain(
    value: Any,
    found: list[Diagnostic],
    locate: Locate,
    path: tuple[Step, ...] = (),
    *,
    above: tuple[int, ...] = (),
    budget: list[int] | None = None,
) -> Any:
    """A copy made of dicts with text keys, lists and scalars; what cannot be configuration becomes a finding and is dropped.

    ``above``: identities of the containers around the value; ``budget``: values that may still be copied.
    """
    budget = [MAX_VALUES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0:
        if budget[0] == -1:
            found.append(
                _refused(path, f"stands behind {MAX_VALUES} other values; no configuration has so many", locate)
            )
        return None
    if len(path) > MAX_DEPTH:
        found.append(_refused(path, "is nested too deeply", locate))
        return None
    if is_node(value):
        value, problem = container(value)
        if problem is not None:
            found.append(_unresolved(problem, path))
            return None
        if path and isinstance(value, dict) and set(value) == {path[-1]}:
            value = value[path[-1]]  # the node of a group, handed over under the group's name
    if id(value) in above:
        found.append(_refused(path, "contains itself", locate))
        return None
    inside: dict[str, Any] = {"above": (*above, id(value)), "budget": budget}
    if isinstance(value, Mapping):
        return {str(k): plain(v, found, locate, (*path, str(k)), **inside) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, found, locate, (*path, i), **inside) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        found.append(_refused(path, f"is {value}, which is not a finite number", locate))
        return None
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        found.append(_refused(path, f"is {shown(value)}, which does not fit in 64 bits", locate))
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    found.append(
        _refused(path, f"is {shown(value)}, which is not text, a number, true, false, a list or a mapping", locate)
    )
    return None


def _unresolved(problem: str, path: tuple[Step, ...] = ()) -> Diagnostic:
    fix = "compose the configuration so that every interpolation resolves"
    return Diagnostic("wrong-type", "error", format_path(path), f"a value cannot be resolved: {problem}", fix, API)


def _refused(path: tuple[Step, ...], problem: str, locate: Locate) -> Diagnostic:
    at = format_path(path)
    return Diagnostic(
        "wrong-type",
        "error",
        at,
        f"'{path[-1] if path else 'the file'}' {problem}",
        "write a plain value",
        locate(path, False),
    )


def shown(value: Any) -> str:
    """A value in a message: short, and never a traceback of its own ``repr``."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def at_path(data: Any, path: Sequence[Step]) -> Any:
    """The value at a path of plain data, or None."""
    for step in path:
        if isinstance(step, int):
            data = data[step] if isinstance(data, list) and 0 <= step < len(data) else None
        else:
            data = data.get(step) if isinstance(data, dict) else None
        if data is None:
            return None
    return data


def without(data: Any, path: Sequence[Step]) -> Any:
    """Plain data without the value at ``path``; list items become null so that the others keep their places."""
    if not path or data is None:
        return None if not path else data
    head, rest = path[0], path[1:]
    if isinstance(data, dict) and head in data:
        if rest:
            return {k: without(v, rest) if k == head else v for k, v in data.items()}
        return {k: v for k, v in data.items() if k != head}
    if isinstance(data, list) and isinstance(head, int) and head < len(data):
        return [without(v, rest) if i == head else v for i, v in enumerate(data)]
    return data


def nowhere(path: tuple[Step, ...], key: bool = False) -> Source | None:
    return None
