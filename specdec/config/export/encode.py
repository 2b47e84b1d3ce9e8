"""Flags of an engine in every form they are handed over in: words, a shell line, YAML and JSON.

A value never turns into a flag, and never changes its type: text that begins with a dash is glued to its flag, and text
that YAML 1.1 or 1.2 would read as something else is quoted.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from specdec.config.final.speculative_config import plain
from specdec.config.read.scalars import RULES


@dataclass(frozen=True)
class Flag:
    """One flag; ``value`` True is the bare flag, False the bare flag that turns it off."""

    name: str  # with its dashes
    value: Any = True

    @property
    def key(self) -> str:
        """The name in a settings file."""
        return self.name.lstrip("-")


def words(flags: Iterable[Flag]) -> list[str]:
    """Arguments of a command."""
    out: list[str] = []
    for flag in flags:
        if flag.value is True:
            out.append(flag.name)
        elif flag.value is False:
            out.append(flag.name.replace("--", "--no-", 1))
        else:
            text = flag.value if isinstance(flag.value, str) else compact(flag.value)
            out += [f"{flag.name}={text}"] if text.startswith("-") or not text else [flag.name, text]
    return out


def compact(value: Any) -> str:
    """A value as JSON without blanks."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)


def positional(text: str) -> str:
    """A path or a hub id as a word of its own; a local path that begins with a dash is written from its folder."""
    return f"./{text}" if text.startswith("-") else text


def settings(flags: Iterable[Flag]) -> dict[str, Any]:
    """The same as a mapping of names without dashes, types kept."""
    return {flag.key: plain(flag.value) for flag in flags}


def shell(command: Sequence[str]) -> str:
    """One command, quoted for a POSIX shell, a flag with its value on each line."""
    lines: list[str] = []
    line = ""
    for word in command:
        quoted = shlex.quote(word)
        if word.startswith("--") and line:
            lines.append(line)
            line = f"  {quoted}"
        else:
            line = f"{line} {quoted}" if line else quoted
    return " \\\n".join([*lines, line])


def unprintable(value: Any) -> bool:
    """Whether a text, or one inside a value, holds a line break or another control character."""
    if isinstance(value, str):
        return any(ord(c) < 32 or ord(c) == 127 for c in value)
    if isinstance(value, Mapping):
        return any(unprintable(part) for pair in value.items() for part in pair)
    return isinstance(value, (list, tuple)) and any(unprintable(part) for part in value)


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    is_ambiguous = any(pattern.match(value) for _, pattern, _ in RULES) or value.lstrip("-+").isdigit()
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="'" if is_ambiguous else None)


_Dumper.add_representer(str, _text)


def yaml_text(data: Any) -> str:
    """Settings as YAML that readers of 1.1 and of 1.2 take for the same values."""
    return yaml.dump(plain(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def json_text(data: Any) -> str:
    """Settings as JSON."""
    return json.dumps(plain(data), indent=2, ensure_ascii=False)
