"""Command line overrides: Hydra's grammar and composition over a loaded file, with our own findings.

Hydra is imported on first use. User data is composed, never instantiated; nothing is written to disk.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.findings.render import quote
from specdec.config.read.override_syntax import ROOT_KEYS, Parsed, command_line, parse_override

GROUP = "speculative"
MAX_SWEEP = 1000
_SIMPLE = re.compile(r"^[\w-]+$")  # a step that Hydra's grammar takes as it is
_LOCK = threading.Lock()  # Hydra's composition state is global


class OverrideError(ValueError):
    """Overrides that cannot be expanded; carries the findings."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(d.message for d in diagnostics))


def apply_overrides(
    data: Any, overrides: Sequence[str], registry: Any
) -> tuple[Any, dict[tuple[Step, ...], Source], list[Diagnostic]]:
    """``data`` after the overrides, where each overridden path comes from, and what was wrong.

    ``registry`` has ``records``, or is itself a collection of method names. ``data`` is not changed. Unknown keys are
    applied, so that the schema check reports them with the override as their source.
    """
    methods = list(getattr(registry, "records", registry))
    parsed, found = _parse_all(overrides)
    base = {} if data is None else data
    if not isinstance(base, dict):
        return data, {}, found
    base = copy.deepcopy(base)
    found += _duplicates(parsed)
    for override in parsed:
        found += _fits(base, override)
    if any(d.severity == "error" for d in found):
        return data, {}, found
    sources: dict[tuple[Step, ...], Source] = {}
    for override in parsed:
        for leaf in override.leaves():
            full = _indexed(base, leaf)
            sources[full] = override.source()
            for length in range(1, len(full)):  # parents that only exist because of this override
                if not _has(base, full[:length]):
                    sources.setdefault(full[:length], override.source())
        if override.deletes:
            gone = _indexed(base, override.path)
            _delete(base, override.path)
            sources = {path: source for path, source in sources.items() if path[: len(gone)] != gone}
    try:
        return _compose(base, [o for o in parsed if not o.deletes], methods), sources, found
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("hydra", "omegaconf"):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = " ".join(o.text for o in parsed)
        source = Source("command line", None, None, None, text)
        fix = "set one value an override"
        return data, {}, [Diagnostic("override-path", "error", "", f"cannot be applied: {reason}", fix, source)]


def _has(data: Any, path: tuple[Step, ...]) -> bool:
    for step in path:
        if isinstance(data, dict) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return False
    return True


def _indexed(data: Any, path: tuple[Step, ...]) -> tuple[Step, ...]:
    """``path`` with the steps into lists as numbers."""
    done: list[Step] = []
    for step in path:
        inside_list = isinstance(data, list) and str(step).isdigit()
        done.append(int(step) if inside_list else step)
        if inside_list:
            data = data[int(step)] if int(step) < len(data) else None
        else:
            data = data.get(step) if isinstance(data, dict) else None
    return tuple(done)


def expand_sweep(overrides: Sequence[str], registry: Any = ()) -> list[list[str]]:
    """Every combination of a sweep, the first override varying slowest: ``a=1,2 b=3`` is ``[[a=1, b=3], [a=2, b=3]]``.

    Raises ``OverrideError`` for bad grammar and for more than ``MAX_SWEEP`` combinations.
    """
    methods = list(getattr(registry, "records", registry))
    parsed, found = _parse_all(overrides, sweep=True)
    found += _duplicates(parsed)
    choices: list[list[str]] = []
    total = 1
    for override in parsed:
        try:
            texts = override.sweep_texts(methods, MAX_SWEEP)
        except ValueError as error:
            found.append(
                Diagnostic("override-syntax", "error", format_path(override.path), str(error), None, override.source())
            )
            continue
        choices.append(texts)
        total *= max(len(texts), 1)
        if total > MAX_SWEEP:
            message = f"the sweep has more than {MAX_SWEEP} combinations"
            found.append(Diagnostic("sweep-too-large", "error", "", message, "sweep fewer values", override.source()))
            break
    if found:
        raise OverrideError(found)
    combinations: list[list[str]] = [[]]
    for texts in choices:
        combinations = [[*done, text] for done in combinations for text in texts]
    return combinations


def locator(sources: Mapping[tuple[Step, ...], Source], otherwise: Any) -> Any:
    """A ``Locate`` that answers with the override for overridden paths and asks ``otherwise`` for the rest."""

    def locate(path: tuple[Step, ...], key: bool) -> Source | None:
        for length in range(len(path), 0, -1):
            source = sources.get(path[:length])
            if source is not None:
                return command_line(source.text or "", path, key)
        found: Source | None = otherwise(path, key) if otherwise else None
        return found

    return locate


def _parse_all(overrides: Iterable[str], sweep: bool = False) -> tuple[list[Parsed], list[Diagnostic]]:
    parsed, found = [], []
    for text in overrides:
        one, wrong = parse_override(text, sweep)
        if wrong is not None:
            found.append(wrong)
        elif one is not None:
            parsed.append(one)
    return parsed, found


def _duplicates(parsed: Sequence[Parsed]) -> list[Diagnostic]:
    """The same value set twice is an error: one of the two would silently lose."""
    first: dict[tuple[Step, ...], Parsed] = {}
    found = []
    for override in parsed:
        for leaf in override.leaves() or [override.path]:
            other = first.setdefault(leaf, override)
            if other is override:
                continue
            name = format_path(leaf)
            message = f"'{name}' is given twice: {other.text} and {override.text}"
            fix = "give it once"
            if leaf == (GROUP, "method"):
                items = ", ".join(f"{{method: {o.value_at(leaf)}}}" for o in (other, override))
                fix += f"; for a chain of speculators write '{GROUP}=[{items}]'"
            else:
                fix += f"; for a list write '{name}=[{_bare(other.value_at(leaf))}, {_bare(override.value_at(leaf))}]'"
            found.append(Diagnostic("duplicate-override", "error", name, message, fix, override.source()))
            break
    return found


def _bare(value: Any) -> str:
    return quote(value).strip("'")


def _fits(data: dict[str, Any], override: Parsed) -> list[Diagnostic]:
    """Whether the path of an override can exist in ``data``: parents are mappings, indices are in range."""
    path, node = override.path, data
    chain = data.get(GROUP)
    if path == (GROUP,) and isinstance(chain, list) and isinstance(override.value, str):
        message = f"'{GROUP}' is a chain of {len(chain)} speculators; '{override.value}' does not say which of them"
        fix = f"write {GROUP}.0.method={override.value}, or {GROUP}=[{{method: {override.value}}}] for a new chain"
        return [Diagnostic("override-path", "error", GROUP, message, fix, override.source())]
    for depth, step in enumerate(path):
        parent = format_path(path[:depth])
        if isinstance(node, list):
            index = int(step) if str(step).isdigit() else None
            if index is None or index >= len(node):
                message = f"'{parent}' is a list of {len(node)}; '{step}' is not an item of it"
                fix = (
                    f"use an index from 0 to {len(node) - 1}, for example {parent}.0"
                    if node
                    else f"set the list: '{parent}=[...]'"
                )
                return [Diagnostic("override-path", "error", format_path(path), message, fix, override.source())]
            node = node[index]
        elif isinstance(node, dict):
            if step not in node:
                if override.deletes:
                    from specdec.config.findings.suggest import nearest

                    near = nearest(str(step), node)
                    fix = f"did you mean '~{format_path((*path[:depth], near))}'?" if near else "leave the override out"
                    message = f"there is no '{format_path(path)}' to remove"
                    return [Diagnostic("override-path", "error", format_path(path), message, fix, override.source())]
                return []
            node = node[step]
        elif node is None and not override.deletes:
            return []
        else:
            message = f"'{parent}' is {quote(node)}, not a mapping; it has no '{step}'"
            return [
                Diagnostic(
                    "override-path",
                    "error",
                    format_path(path),
                    message,
                    f"set it as a whole: {parent}=...",
                    override.source(),
                )
            ]
    return []


def _delete(data: Any, path: tuple[Step, ...]) -> None:
    for step in path[:-1]:
        data = data[int(step)] if isinstance(data, list) else data[step]
    if isinstance(data, list):
        del data[int(path[-1])]
    else:
        del data[path[-1]]


def _compose(data: dict[str, Any], overrides: Sequence[Parsed], methods: Sequence[str]) -> dict[str, Any]:
    """The file's data, the option chosen of the group, and the values, composed by Hydra.

    Values travel as placeholders: Hydra places them, and nothing in a user's text can mean anything to it.
    """
    texts: list[Any] = []
    body = _hide({key: value for key, value in data.items() if key in ROOT_KEYS}, texts)
    rest = {key: value for key, value in data.items() if key not in ROOT_KEYS}  # the check reports these
    chosen: str | None = None
    lines: list[str] = []
    direct: list[tuple[tuple[Step, ...], Any]] = []
    for override in overrides:
        for path in override.leaves():
            value = override.value_at(path)
            if path == (GROUP, "method") and value in methods and not isinstance(body.get(GROUP), list):
                chosen = value
            elif path[0] in ROOT_KEYS and path != (GROUP,) and all(_SIMPLE.match(str(step)) for step in path):
                _make_parents(body, path)
                texts.append(value)
                lines.append(f"++{'.'.join(map(str, path))}={_MARK}{len(texts) - 1}")
            else:
                direct.append((path, value))
    composed = {**_restore(_hydra(body, chosen, lines), texts), **rest}
    for path, value in direct:
        _set(composed, path, value)
    return composed


def _hydra(body: dict[str, Any], chosen: str | None, lines: list[str]) -> dict[str, Any]:
    """Hydra's Compose API over a strict root whose sections are open; the chosen record is an option of the group."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    def opened(value: Any) -> Any:
        node = OmegaConf.create(value)
        OmegaConf.set_struct(node, False)
        return node

    sections = {key: opened(value) if isinstance(value, (dict, list)) else value for key, value in body.items()}
    if chosen is not None and sections.get(GROUP) is None:
        sections[GROUP] = opened({})
    own = [{f"override hydra/{part}": None} for part in _UNUSED]
    defaults = ["_self_", *([{GROUP: chosen}] if chosen else []), *own]
    store = ConfigStore.instance()
    with _LOCK:
        current = GlobalHydra.instance()
        kept, running = store.repo, current.hydra  # an application that uses Hydra itself finds its state unchanged
        current.hydra = None
        store.repo = {key: value for key, value in kept.items() if key != GROUP}
        try:
            store.store(name=_MARK + "file", node=OmegaConf.create({"defaults": defaults, **sections}))
            if chosen is not None:
                store.store(group=GROUP, name=chosen, node=opened({"method": chosen}))
            # a folder that holds none of these configs: `initialize` would look for its caller's file instead
            with initialize_config_dir(str(Path(__file__).parent), version_base="1.3"):
                composed = compose(_MARK + "file", overrides=lines)
        finally:
            store.repo = kept
            GlobalHydra.instance().hydra = running
    plain = OmegaConf.to_container(composed, resolve=False, throw_on_missing=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


_MARK = "specdec-text-"
# Hydra's own settings that are for programs it launches; each is a file that it would read
_UNUSED = ("launcher", "sweeper", "help", "hydra_help", "hydra_logging", "job_logging", "output", "env")


def _hide(value: Any, texts: list[Any]) -> Any:
    """Texts with ``$`` or ``?`` replaced by placeholders: OmegaConf would read interpolations and missing values in them."""
    if isinstance(value, dict):
        return {key: _hide(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide(item, texts) for item in value]
    if isinstance(value, str) and ("$" in value or value == "???" or value.startswith(_MARK)):
        texts.append(value)
        return f"{_MARK}{len(texts) - 1}"
    return value


def _restore(value: Any, texts: Sequence[Any]) -> Any:
    if isinstance(value, dict):
        return {key: _restore(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore(item, texts) for item in value]
    if isinstance(value, str) and value.startswith(_MARK):
        return copy.deepcopy(texts[int(value[len(_MARK) :])])
    return value


def _make_parents(data: dict[str, Any], path: tuple[Step, ...]) -> None:
    """Give every null or absent parent of ``path`` a mapping to be filled."""
    node: Any = data
    for step in path[:-1]:
        key = int(step) if isinstance(node, list) else step
        if isinstance(node, dict) and node.get(str(key)) is None:
            node[str(key)] = {}
        node = node[key]


def _set(data: dict[str, Any], path: tuple[Step, ...], value: Any) -> None:
    _make_parents(data, path)
    node: Any = data
    for step in path[:-1]:
        node = node[int(step)] if isinstance(node, list) else node[step]
    node[int(path[-1]) if isinstance(node, list) else path[-1]] = value
