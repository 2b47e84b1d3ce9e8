"""What a configuration schema knows: sections, methods, and which method reads which option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from specdec.config.findings.paths import Step

SPECULATIVE = "speculative"
INT64 = 2.0**63
METHOD_PREFIX = "method_"  # definitions/method_<record>


class Known:
    """Names in a schema made by ``build_schema``, computed on first use: a good file never asks."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._definitions: Mapping[str, Any] = schema.get("definitions", {})

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """Root section -> its keys (empty for ``speculative``, whose keys depend on the method)."""
        return {
            name: list(self.resolve(part).get("properties", {})) if name != SPECULATIVE else []
            for name, part in self._schema.get("properties", {}).items()
        }

    @cached_property
    def methods(self) -> dict[str, list[str]]:
        """Canonical method -> the options it reads."""
        return {
            name.removeprefix(METHOD_PREFIX): list(part["properties"])
            for name, part in self._definitions.items()
            if name.startswith(METHOD_PREFIX)
        }

    @cached_property
    def names(self) -> dict[str, str]:
        """Every name of a method -> its canonical name."""
        found = {}
        for name, part in self._definitions.items():
            if name.startswith(METHOD_PREFIX):
                for written in part["x-specdec"]["names"]:
                    found[written] = name.removeprefix(METHOD_PREFIX)
        return found

    @cached_property
    def lowered(self) -> dict[str, str]:
        """Every name of a method in lower case -> its canonical name; case does not matter in method names."""
        return {written.lower(): name for written, name in self.names.items()}

    @cached_property
    def deprecated_methods(self) -> dict[str, str]:
        """Deprecated names -> what more to say about them."""
        found: dict[str, str] = {}
        for name, part in self._definitions.items():
            if name.startswith(METHOD_PREFIX):
                found.update(part["x-specdec"].get("deprecated", {}))
        return found

    def canonical_method(self, method: Any) -> str | None:
        return self.lowered.get(method.lower()) if isinstance(method, str) else None

    def resolve(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """The definition that a ``$ref`` names, or the part itself."""
        ref = part.get("$ref")
        return self._definitions[ref.rsplit("/", 1)[1]] if ref else part

    def option(self, method: str, name: str) -> Mapping[str, Any]:
        """The schema of an option of a method."""
        return self.resolve(self._definitions.get(METHOD_PREFIX + method, {}).get("properties", {}).get(name, {}))

    @cached_property
    def chains(self) -> frozenset[str]:
        """Options that hold a list of speculators."""
        return frozenset(
            name
            for method, options in self.methods.items()
            for name in options
            if self.option(method, name).get("x-specdec", {}).get("chain")
        )

    def readers(self, option: str) -> list[str]:
        """The methods that read an option."""
        return [method for method, options in self.methods.items() if option in options]

    def renamed_option(self, method: Any, key: str) -> str | None:
        """The canonical spelling of an option that is written another way."""
        owners = [canonical] if (canonical := self.canonical_method(method)) else list(self.methods)
        for owner in owners:
            alias = self.option(owner, key).get("x-specdec", {}).get("alias_of")
            if alias:
                return str(alias)
        return None

    def homes(self, key: str) -> list[str]:
        """The sections that have a key of this name."""
        found = [SPECULATIVE] if key == "method" or self.readers(key) else []
        return found + [section for section, keys in self.sections.items() if key in keys]

    def method_at(self, data: Any, path: tuple[Step, ...]) -> str | None:
        """The canonical method of the speculative block at ``path``; None elsewhere or when it names no known method."""
        block = data
        for depth, step in enumerate(path):
            chain = isinstance(step, int) and (depth == 1 or path[depth - 1] in self.chains)
            if not (step == SPECULATIVE if depth == 0 else chain or step in self.chains):
                return None
            block = block[step]
        return self.canonical_method(block.get("method")) if path and isinstance(block, dict) else None

    def speculative_blocks(self, data: Any) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
        """Every speculator's own block with its path: one, or one for each link of a chain."""
        if isinstance(data, dict):
            yield from self._blocks((SPECULATIVE,), data.get(SPECULATIVE))

    def _blocks(self, path: tuple[Step, ...], value: Any) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from self._blocks((*path, i), item)
        elif isinstance(value, dict):
            yield path, value
            for name, links in value.items():
                if isinstance(links, list) and links and isinstance(links[0], dict) and name in self.chains:
                    yield from self._blocks((*path, name), links)

    def with_known_methods(self, data: Any) -> Any:
        """``data`` with method names that differ from a known name only in case written the known way."""
        changes = {
            path: self.lowered[block["method"].lower()]
            for path, block in self.speculative_blocks(data)
            if isinstance(block.get("method"), str)
            and block["method"] not in self.names
            and block["method"].lower() in self.lowered
        }
        for path, method in changes.items():
            data = _with(data, (*path, "method"), method)
        return data

    def with_whole_numbers(self, data: Any) -> Any:
        """``data`` with ``5.0`` written ``5`` wherever only an integer is meant, so that rules see one type."""
        if not isinstance(data, dict):
            return data
        parts = self._schema.get("properties", {})
        return {
            name: self._whole_block(value) if name == SPECULATIVE else self._whole(parts.get(name, {}), value)
            for name, value in data.items()
        }

    def _whole_block(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._whole_block(item) for item in value]
        if not isinstance(value, dict):
            return value
        method = self.canonical_method(value.get("method"))
        written = {}
        for name, item in value.items():
            if name in self.chains and isinstance(item, list):
                written[name] = self._whole_block(item)
                continue
            # without a method, what any of them reads: an option has one type wherever it is an option
            owners = [method] if method else self.readers(name)
            written[name] = self._whole(self.option(owners[0], name), item) if owners else item
        return written

    def _whole(self, part: Any, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(part, Mapping):
            return value
        part = self.resolve(part)
        if isinstance(value, float):
            kinds = part.get("type", ())
            is_meant = "integer" in ([kinds] if isinstance(kinds, str) else kinds) and "number" not in kinds
            return int(value) if is_meant and value.is_integer() and abs(value) < INT64 else value
        if isinstance(value, list):
            items = part.get("items", {})
            inner = items if isinstance(items, list) else [items] * len(value)
            return [self._whole(p, v) for p, v in zip(inner, value, strict=False)] + value[len(inner) :]
        if isinstance(value, dict):
            inner = part.get("properties", {})
            return {name: self._whole(inner.get(name, {}), item) for name, item in value.items()}
        return value

    def needs_other_records(self, data: Any) -> bool:
        """Whether ``data`` brings records or names a method that this schema does not know."""
        if not isinstance(data, dict):
            return False
        if data.get("records"):
            return True
        methods = [block.get("method") for _, block in self.speculative_blocks(data)]
        return any(isinstance(m, str) and m.lower() not in self.lowered for m in methods)

    def how_to_write(self, key: str, method: str | None) -> str:
        """An example line for a missing key."""
        part = self.option(method, key) if method else {}
        example = next(iter(part.get("examples", ())), part.get("default"))
        return f"add '{key}: {example}'" if example is not None else f"add '{key}: ...'"


def _with(data: Any, path: tuple[Step, ...], value: Any) -> Any:
    """A copy of ``data`` with another value at ``path``; what is not on the path is shared."""
    if not path:
        return value
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[path[0]] = _with(data[path[0]], path[1:], value)  # type: ignore[index]
    return copy
