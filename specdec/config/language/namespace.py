"""Frozen mappings whose keys are also attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CANNOT_CHANGE = "a finalized configuration is frozen and cannot be changed; resolve again with an override"


class FrozenError(AttributeError, ValueError):
    """Something tried to change a finalized configuration."""


class Namespace(Mapping[str, Any]):
    """A frozen mapping whose keys are also attributes: ``config.options.prompt_lookup_max``."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_values", {k: freeze(v) for k, v in (values or {}).items()})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(
                f"no value {name!r}; there is: {', '.join(sorted(self._values)) or 'nothing'}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenError(CANNOT_CHANGE)

    def __repr__(self) -> str:
        return f"Namespace({self._values!r})"

    def __eq__(self, other: object) -> bool:
        return dict(self._values) == (dict(other) if isinstance(other, Mapping) else other)

    def __hash__(self) -> int:
        return hash(repr(sorted(self._values.items(), key=str)))

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for YAML or JSON."""
        data: dict[str, Any] = plain(self)
        return data


def freeze(value: Any) -> Any:
    """Lists as tuples and mappings as namespaces, all the way down; a mapping that is frozen already stays."""
    if isinstance(value, Namespace) or getattr(type(value), "model_fields", None) is not None:
        return value
    if isinstance(value, Mapping):
        return Namespace(value)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    return value


def plain(value: Any) -> Any:
    """Plain dicts, lists and scalars."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
