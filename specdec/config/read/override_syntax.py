"""One override: parsed by Hydra's grammar, read by the same scalar rules as files, refused with a hint."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.read import scalars

MAX_LENGTH = 2000  # characters of one override
ROOT_KEYS = ("schema_version", "target", "speculative", "engine", "sampling", "records", "metadata")
_PLAIN = re.compile(r"^[^\\(){}\[\]'\"$,]*$")  # a value without grammar: our scalar rules apply to it


@dataclass(frozen=True)
class Parsed:
    """An override whose grammar is right."""

    text: str
    path: tuple[Step, ...]
    value: Any = None
    deletes: bool = False
    sweep: Any = None  # Hydra's override object, when it names several values

    def source(self) -> Source:
        """The override itself, with the caret under its value."""
        return command_line(self.text, self.path, False)

    def leaves(self) -> list[tuple[Step, ...]]:
        """The paths it sets; choosing a method by ``speculative=name`` sets ``speculative.method``."""
        if self.deletes:
            return []
        if self.path == ("speculative",) and isinstance(self.value, str):
            return [("speculative", "method")]
        return list(_leaves(self.path, self.value)) or [self.path]

    def value_at(self, leaf: tuple[Step, ...]) -> Any:
        """The value it gives to one of its leaves."""
        value = self.value if self.sweep is None else self.text.partition("=")[2]
        if not isinstance(value, dict):
            return value
        for step in leaf[len(self.path) :]:
            value = value[step]
        return value

    def sweep_texts(self, methods: Sequence[str], limit: int) -> list[str]:
        """The single overrides it stands for; raises ``ValueError`` for a sweep without a list of values."""
        if self.sweep is None:
            return [self.text]
        value = self.sweep.value()
        key = self.sweep.get_key_element()
        kind = type(value).__name__
        if kind == "Glob":
            if self.path != ("speculative",) or not methods:
                raise ValueError("glob() chooses methods only: speculative=glob(eagle*)")
            return [f"{key}={name}" for name in value.filter(list(methods))]
        if kind == "IntervalSweep":
            raise ValueError("interval() has no single values; write them: 1,3,5 or range(1, 6)")
        if kind == "RangeSweep" and (not value.step or abs((value.stop - value.start) / value.step) > limit):
            raise ValueError(f"range() has more than {limit} values")
        return [f"{key}={text}" for text in self.sweep.sweep_string_iterator()]


def parse_override(text: str, sweep: bool = False) -> tuple[Parsed | None, Diagnostic | None]:
    """The override, or what is wrong with it; several values (``a=1,2``) are wrong unless ``sweep``."""
    if not isinstance(text, str):
        return None, _wrong(str(text), "an override is a text such as speculative.num_speculative_tokens=4", None)
    if len(text) > MAX_LENGTH:  # Hydra's grammar takes seconds over a long list
        problem = f"the override has {len(text)} characters; allowed: {MAX_LENGTH}"
        return None, _wrong(f"{text[:60]}...", problem, "write the value in the file")
    try:
        found = _parser().parse_override(text)
        swept = found.value_type is not None and found.is_sweep_override()
        value = None if swept else found.value()
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("hydra", "omegaconf", "antlr4"):
            raise
        return None, _wrong(text, *_grammar_help(text, str(error)))
    if found.package is not None:
        return None, _wrong(text, "'@' in a key is not read", "write the dotted path of the value")
    key = found.key_or_group.replace("/", ".")
    if not key or not all(key.split(".")):
        return None, _wrong(text, "the key is empty", "write key=value, for example engine.seed=1")
    path = tuple(key.split("."))
    if path[0] == "hydra":
        message = "Hydra's own settings are not read: nothing is written and nothing is launched"
        return None, _wrong(text, message, "leave it out", format_path(path))
    if found.is_delete():
        return Parsed(text, path, deletes=True), None
    if swept:
        if sweep:
            return Parsed(text, path, sweep=found), None
        shown = text.partition("=")[2]
        fix = f"for a list write '{key}=[{shown}]', for a sweep add -m" if "(" not in shown else "add -m for a sweep"
        return None, Diagnostic(
            "override-sweep",
            "error",
            format_path(path),
            "several values without -m",
            fix,
            command_line(text, path, False),
        )
    try:
        value = _plain_value(text, value)
    except OverflowError as error:
        place = command_line(text, path, False)
        raw = text.partition("=")[2]
        return None, Diagnostic(
            "not-finite", "error", format_path(path), f"{raw} {error}", "write a finite number", place
        )
    return Parsed(text, path, value), None


def command_line(text: str, path: tuple[Step, ...], key: bool) -> Source:
    """The override as a source, its column under the key or the value of ``path``."""
    head, equals, value = text.partition("=")
    start = len(head) - len(head.lstrip("+~"))
    steps = re.split(r"[./]", head[start:])
    column = len(head) + 2  # the value
    if len(path) > len(steps) and equals:  # inside the value: {steps: 2, topkk: 2}
        inside = re.search(rf"(?<!\w){re.escape(str(path[-1]))}(?!\w)(\s*:\s*)?", value)
        if inside:
            column += inside.start() if key else inside.end()
    elif key or not equals or len(steps) > len(path):
        column = start + sum(len(step) + 1 for step in steps[: len(path) - 1]) + 1
    return Source("command line", None, None, column, text)


@lru_cache(maxsize=1)
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def _plain_value(text: str, value: Any) -> Any:
    """The value, a plain scalar read by the rules for files; raises ``OverflowError`` for what they refuse."""
    raw = text.partition("=")[2].strip()
    if not isinstance(value, (dict, list)) and raw and _PLAIN.match(raw):
        for tag, pattern, _ in scalars.RULES:
            if pattern.match(raw):
                return scalars.convert(tag, raw)
        return raw
    return _unwrap(value)


def _unwrap(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _unwrap(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unwrap(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError("is not a finite number")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise OverflowError("does not fit in 64 bits")
    return str(value) if isinstance(value, str) else value


def _leaves(path: tuple[Step, ...], value: Any) -> Any:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves((*path, key), item)
    else:
        yield path


def _wrong(text: str, message: str, fix: str | None, path: str = "") -> Diagnostic:
    return Diagnostic("override-syntax", "error", path, message, fix, Source("command line", None, None, None, text))


def _grammar_help(text: str, error: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        if text.startswith("-"):
            return "not an override", "write key=value"
        return f"'{text}' is neither a file nor an override", "write key=value, or check the file name"
    index = re.search(r"\[(\d+)\]", key)
    if index:
        return "items of a list are written with a dot", f"write {key.replace(index[0], '.' + index[1])}={value}"
    if value.lstrip().startswith("{") and '"' in value:
        return (
            "JSON is not read here",
            f"write the mapping without quotes around its keys: '{key}={_without_key_quotes(value)}'",
        )
    if value.lstrip()[:1] in "{[" and value.lstrip()[:1]:
        return (
            "the brackets of the value do not match, or it needs quotes in the shell",
            f"write '{key}={value}' in quotes, and close every bracket",
        )
    special = next((c for c in value if c in "=!#~'\"()" or ord(c) > 126), None)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return (
        f"the value has {special!r}, which needs quotes"
        if special
        else f"not in the override grammar: {error.splitlines()[0]}",
        f"""quote it twice, for the shell and for the grammar: "{key}='{escaped}'\"""",
    )


def _without_key_quotes(value: str) -> str:
    return re.sub(r'"([A-Za-z_]\w*)"\s*:', r"\1:", value)
