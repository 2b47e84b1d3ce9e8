"""Reading a YAML or JSON file into plain data that remembers where every key and value stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.read import scalars
from specdec.config.read.source_faults import SourceError, fatal, near_file, syntax_error, too_large

__all__ = ["Document", "Mark", "SourceError", "fatal", "load", "parse", "parse_bytes", "split_lines"]
MAX_BYTES = 1_000_000
MAX_NODES = 100_000  # after aliases are expanded
MAX_DEPTH = 60

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML counts as a line


class Mark(NamedTuple):
    """A position in a file, both numbers from 1."""

    line: int
    column: int


@dataclass
class Document:
    """One parsed file: plain ``data`` (string keys), positions, and the faults found while reading it."""

    name: str
    data: Any
    node: Any
    lines: list[str]
    problems: list[Diagnostic] = field(default_factory=list)
    _index: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict, repr=False)

    def line_text(self, line: int) -> str:
        """The text of a line (from 1), empty past the end."""
        return self.lines[line - 1] if 1 <= line <= len(self.lines) else ""

    def mark(self, path: Sequence[Step], key: bool = False) -> Mark:
        """Where the value at ``path`` (or its key) is written; the nearest parent for a path that is not in the file."""
        at = node = self.node
        for depth, step in enumerate(path):
            if isinstance(node, yaml.SequenceNode):
                if not isinstance(step, int) or step >= len(node.value):
                    break
                at = node = node.value[step]
                continue
            pair = self._keys(node).get(str(step)) if _is_map(node) else None
            if pair is None:
                break
            node = pair[1]
            at = pair[0] if key and depth == len(path) - 1 else node
        return Mark(at.start_mark.line + 1, at.start_mark.column + 1)

    def _keys(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """Key -> its node and its value's node, of a mapping and what is merged into it."""
        found = self._index.get(id(node))
        if found is None:
            found = self._index[id(node)] = {}
            for key, value in _pairs(node):
                found.setdefault(key.value if isinstance(key.value, str) else "", (key, value))
        return found

    def source(self, path: Sequence[Step], key: bool = False) -> Source:
        """``mark`` as a Source that carries the line's text."""
        return self.at(self.mark(path, key))

    def at(self, mark: Mark) -> Source:
        """The Source of a position in this file."""
        return Source("file", self.name, mark.line, mark.column, self.line_text(mark.line))


class _Loader(_Base):  # type: ignore[misc]
    """Composes nodes with YAML 1.2 core tags."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern, _first in scalars.RULES:
    for _char in _first:
        _Loader.yaml_implicit_resolvers.setdefault(_char, []).append((_tag, _pattern))


def load(path: str | Path, name: str | None = None) -> Document:
    """Read a ``.yaml``, ``.yml`` or ``.json`` file; raises ``SourceError`` when it cannot be read as one document."""
    file, name = Path(path), name or str(path)
    try:
        size = file.stat().st_size
        if file.is_dir():
            inside = sorted(p.name for p in file.glob("*.y*ml"))[:1]
            raise fatal(
                "is-a-directory",
                name,
                f"is a directory; name a file{f', for example {file / inside[0]}' if inside else ''}",
            )
        if size > MAX_BYTES:
            raise too_large(name, size, MAX_BYTES)
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise fatal("file-not-found", name, f"no file '{name}'{near_file(file)}") from None
    except OSError as error:
        raise fatal("cannot-read", name, f"cannot be read: {error.strerror or error}") from None
    except ValueError:  # a NUL character in the name
        raise fatal("cannot-read", repr(name), "is not a file name") from None
    return parse_bytes(raw, name)


def parse_bytes(raw: bytes, name: str) -> Document:
    """Decode and parse the content of a file or of standard input."""
    if len(raw) > MAX_BYTES:
        raise too_large(name, len(raw), MAX_BYTES)
    try:
        return parse(raw.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text (byte 0x{raw[error.start]:02x} at offset {error.start}); save it as UTF-8"
        raise fatal("not-utf-8", name, message) from None


def parse(text: str, name: str = "<text>") -> Document:
    """Parse one YAML 1.2 document; raises ``SourceError``, collects what can be located in ``problems``."""
    lines = split_lines(text)
    loader = None
    try:
        loader = _Loader(_json_text(text) if name.endswith(".json") else text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise syntax_error(error, name, lines, MAX_DEPTH) from None
    except yaml.reader.ReaderError as error:
        code = f"U+{error.character:04X}" if isinstance(error.character, int) else repr(error.character)
        line = text.count("\n", 0, error.position) + 1
        source = Source("file", name, line, None, None)
        raise SourceError(
            Diagnostic(
                "yaml-syntax",
                "error",
                "",
                f"control character {code} is not allowed in YAML",
                "remove it, or write it as an escape in double quotes",
                source,
            )
        ) from None
    except RecursionError:
        raise fatal("too-deep", name, f"is nested deeper than {MAX_DEPTH} levels") from None
    finally:
        if loader is not None:
            loader.dispose()
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null") and node.value == ""):
        raise fatal("empty-file", name, "is empty; 'specdec init' writes a first file")
    _guard(node, name)
    document = Document(name, None, node, lines)
    document.data = _build(node, (), document)
    return document


def split_lines(text: str) -> list[str]:
    """The lines of a YAML file, numbered as its positions are."""
    return _LINE_BREAK.split(text)


def _json_text(text: str) -> str:
    """JSON as YAML: no tabs before a line, and one escape for a character that JSON writes as two; columns stay the same."""
    text = re.sub(r"(?m)^[ \t]+", lambda found: found[0].replace("\t", " "), text)
    return _JSON_STRING.sub(_joined_surrogates, text) if _SURROGATES.search(text) else text


_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SURROGATES = re.compile(r"(?i)(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def _joined_surrogates(string: re.Match[str]) -> str:
    def join(pair: re.Match[str]) -> str:
        code = 0x10000 + ((int(pair[2], 16) - 0xD800) << 10) + int(pair[3], 16) - 0xDC00
        return f"{pair[1]}\\U{code:08x}"

    joined, count = _SURROGATES.subn(join, string[0])
    return joined + "  " * count  # the escape is two characters shorter; spaces after a JSON string mean nothing


def _is_map(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode)


def _is_merge(key: Any) -> bool:
    return bool(key.tag == "tag:yaml.org,2002:merge")


def _pairs(node: Any) -> Iterator[tuple[Any, Any]]:
    """Effective (key, value) nodes, strongest first: the mapping's own keys, then merged mappings in order."""
    own = [(k, v) for k, v in node.value if not _is_merge(k)]
    yield from reversed(own)  # of duplicates the last one is built
    for key, value in node.value:
        if _is_merge(key):
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if _is_map(merged):
                    yield from _pairs(merged)


def _build(node: Any, path: tuple[Step, ...], document: Document) -> Any:
    """Plain data of a node; aliases become copies, so that no two places share an object."""
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, path, document)
    if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"):
        _problem(
            document, "yaml-tag", path, f"the tag {scalars.short_tag(node.tag)} is not read", node, "remove the tag"
        )
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, i), document) for i, item in enumerate(node.value)]
    data: dict[str, Any] = {}
    first: dict[str, Any] = {}
    for key, value in node.value:
        if _is_merge(key):
            for name, item in _merged(value, path, document).items():
                data.setdefault(name, item)
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _problem(document, "yaml-key", path, "a key must be a plain text", key, "write the key as a plain word")
            continue
        name = key.value
        if name in first:
            message = f"the key '{name}' is given twice; the first one is on line {first[name].start_mark.line + 1}"
            fix = "use one '<<' with a list: [*a, *b]" if _is_merge(key) else "remove one of the two"
            _problem(document, "duplicate-key", (*path, name), message, key, fix)
        first.setdefault(name, key)
        if not _is_merge(key):
            data[name] = _build(value, (*path, name), document)
    return data


def _merged(node: Any, path: tuple[Step, ...], document: Document) -> dict[str, Any]:
    sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
    data: dict[str, Any] = {}
    for source in sources:
        if not _is_map(source):
            _problem(
                document, "yaml-key", path, "'<<' needs a mapping or a list of mappings", source, "write <<: *name"
            )
            continue
        scratch = Document(document.name, None, source, document.lines)  # its faults are reported where it is written
        for name, item in _build(source, path, scratch).items():
            data.setdefault(name, item)
    return data


def _scalar(node: Any, path: tuple[Step, ...], document: Document) -> Any:
    try:
        return scalars.convert(node.tag, node.value)
    except KeyError:
        _problem(
            document,
            "yaml-tag",
            path,
            f"the tag {scalars.short_tag(node.tag)} is not read",
            node,
            "write a plain value",
        )
    except OverflowError as error:
        text = node.value if len(node.value) <= 40 else node.value[:37] + "..."
        whole = node.tag.endswith(":int")
        fix = "write a smaller number" if whole else "write a finite number, or null for no value"
        _problem(document, "out-of-range" if whole else "not-finite", path, f"{text} {error}", node, fix)
    except ValueError:
        message = f"'{node.value}' is not a value of {scalars.short_tag(node.tag)}"
        _problem(document, "yaml-tag", path, message, node, "remove the tag, or correct the value")
    return None


def _problem(document: Document, code: str, path: tuple[Step, ...], message: str, node: Any, fix: str) -> None:
    mark = Mark(node.start_mark.line + 1, node.start_mark.column + 1)
    found = Diagnostic(code, "error", format_path(path), message, fix, document.at(mark))
    if found not in document.problems:  # an anchor used twice is built twice
        document.problems.append(found)


def _guard(node: Any, name: str) -> None:
    """Refuse a document whose aliases expand to too much, refer to themselves, or nest too deeply."""
    sizes: dict[int, int] = {}

    def size(node: Any, depth: int) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        if depth > MAX_DEPTH:
            raise fatal("too-deep", name, f"is nested deeper than {MAX_DEPTH} levels")
        known = sizes.get(id(node))
        if known == 0:
            raise fatal("alias-bomb", name, "has an alias that contains itself")
        if known is not None:
            return known
        sizes[id(node)] = 0
        total = 1
        for item in node.value:
            for child in item if isinstance(item, tuple) else (item,):
                total += size(child, depth + 1)
        if total > MAX_NODES:
            raise fatal(
                "alias-bomb", name, f"expands to more than {MAX_NODES:,} values through its aliases or its size"
            )
        sizes[id(node)] = total
        return total

    size(node, 1)
