"""Records that other packages bring, and the classes that records name.

Packages are looked at only when a method is not built in, or when everything is to be listed. A class is imported only
to build the speculator; until then its source is read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.language.record import SpeculatorRecord
from specdec.config.read.source import SourceError
from specdec.config.records import text as records_text
from specdec.config.records.announced import GROUP
from specdec.config.records.extends import RecordError
from specdec.config.records.registry import Document, Registry


@dataclass(frozen=True)
class Extension:
    """One entry point: the package, the text it names, and where that file is."""

    package: str
    value: str  # "package:records.yaml"
    path: Path | None


def extensions() -> list[Extension]:
    """The records files that installed packages announce, sorted by package and value."""
    found = []
    for entry in metadata.entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else entry.name
        module, _, resource = entry.value.partition(":")
        folder = _package_folder(module)
        found.append(Extension(package, entry.value, folder / resource if folder and resource else None))
    return sorted(set(found), key=lambda item: (item.package, item.value))


def extend(registry: Registry) -> tuple[Registry, list[Diagnostic]]:
    """The registry with the records of all installed packages; a package with a fault is left out and reported."""
    problems: list[Diagnostic] = []
    for extension in extensions():
        try:
            registry = _with_extension(registry, extension)
        except (RecordError, SourceError) as error:
            problems.append(_problem(extension, error))
    return registry, problems


def _with_extension(registry: Registry, extension: Extension) -> Registry:
    if extension.path is None:
        message = f"the entry point {extension.value!r} of {extension.package} names no file; it must be 'package:records.yaml'"
        raise RecordError("extension-entry-point", message, None, "correct the entry point")
    text = records_text.read(extension.path)
    larger = registry.with_document(Document(text, f"package {extension.package}"))
    for name in text.value.get("speculators") or {}:
        problem = class_problem(larger.records[name])
        if problem is not None:
            raise problem
    return larger


def _problem(extension: Extension, error: RecordError | SourceError) -> Diagnostic:
    if isinstance(error, SourceError):
        found = error.diagnostic
        return replace(found, path="records", message=f"records of package {extension.package}: {found.message}")
    message = f"records of package {extension.package}: {error.message}"
    source = error.source or Source("record", str(extension.path or extension.value))
    return Diagnostic(error.code, "error", "records", message, error.fix or None, source)


def class_problem(record: SpeculatorRecord) -> RecordError | None:
    """What is wrong with the class of a record, from its source alone; None also when the source cannot tell."""
    if record.implementation is None or record.engines.get("embedded") != "yes":
        return None
    module, _, name = record.implementation.partition(":")
    where = f"{record.name} ({record.origin})"
    file = module_file(module)
    if file is None:
        message = f"{where} names {record.implementation}, and there is no module {module}"
        return RecordError("class-not-found", message, record.source, "install the package, or say embedded: planned")
    methods = class_methods(file, name)
    if methods is None:
        message = f"{where} names {record.implementation}, and {file} has no class {name}"
        return RecordError("class-not-found", message, record.source, "correct the name of the class")
    missing = sorted(required_methods() - methods) if methods is not ANY_METHODS else []
    if missing:
        message = f"{where} names {record.implementation}, which lacks: {', '.join(missing)} (in {file})"
        return RecordError("class-incomplete", message, record.source, f"implement {missing[0]}")
    return None


ANY_METHODS: frozenset[str] = frozenset({"*"})  # a base that is not in the same file may have any method


def module_file(module: str) -> Path | None:
    """The source file of a module, without importing it or its packages."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top)
    for name in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return Path(spec.origin) if spec is not None and spec.origin else None


def class_methods(file: Path, name: str) -> frozenset[str] | None:
    """Methods that a class and its bases in the same file define; None without such a class."""
    classes = {node.name: node for node in _nodes(file) if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    methods: set[str] = set()
    waiting, seen = [name], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current not in classes:
            if current not in ("BaseSpeculator", "ABC", "object"):
                return ANY_METHODS
            continue
        methods |= {node.name for node in classes[current].body if isinstance(node, ast.FunctionDef)}
        waiting += [ast.unparse(base).rsplit(".", 1)[-1] for base in classes[current].bases]
    return frozenset(methods)


@lru_cache(maxsize=1)
def required_methods() -> frozenset[str]:
    """The methods every speculator must define, read from the source of ``BaseSpeculator``."""
    file = Path(__file__).resolve().parents[2] / "speculators" / "base.py"
    base = next(node for node in _nodes(file) if isinstance(node, ast.ClassDef) and node.name == "BaseSpeculator")
    functions = (node for node in base.body if isinstance(node, ast.FunctionDef))
    return frozenset(
        node.name for node in functions if any(ast.unparse(d).endswith("abstractmethod") for d in node.decorator_list)
    )


def _nodes(file: Path) -> Iterator[ast.AST]:
    try:
        yield from ast.parse(file.read_text("utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return


def _package_folder(module: str) -> Path | None:
    file = module_file(module)
    return file.parent if file is not None and file.name == "__init__.py" else None
