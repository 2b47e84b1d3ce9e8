"""What the pydantic models of options have in common: frozen values, read by attribute or as a mapping."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from pydantic import BaseModel, ConfigDict

from specdec.config.language.namespace import CANNOT_CHANGE, FrozenError, plain


class OptionValues(BaseModel):
    """The base of every record's model; each option is a field. Equal to any mapping with the same values."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # names, as of a mapping
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def keys(self) -> KeysView[str]:
        """Names of the options."""
        return self.__dict__.keys()

    def values(self) -> ValuesView[Any]:
        """Values in the order of the names."""
        return self.__dict__.values()

    def items(self) -> ItemsView[str, Any]:
        """Pairs of name and value."""
        return self.__dict__.items()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option, or ``default`` where the record has none of that name."""
        return self.__dict__.get(name, default)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for YAML or JSON."""
        data: dict[str, Any] = plain(self)
        return data

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenError(CANNOT_CHANGE)

    def __eq__(self, other: object) -> bool:
        return plain(self) == plain(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(sorted(self.__dict__.items())))


Mapping.register(OptionValues)
