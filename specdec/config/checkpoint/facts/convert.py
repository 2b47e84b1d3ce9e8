"""Named conversions from a value as a checkpoint writes it to the canonical one; records name them in ``convert``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConversionContext:
    """What a conversion may look at: the key that was found, and the target's decoder layers when they are known."""

    key: str
    target_layers: int | None = None


# A conversion returns the canonical value and how it was read, for the provenance.
Conversion = Callable[[Any, ConversionContext], tuple[Any, str]]


def boundary(ids: Sequence[int], context: ConversionContext) -> tuple[list[int], str]:
    """Boundary i is the input of decoder layer i; id L (the layer count) is the last output before the final norm."""
    return list(ids), "boundary ids, as they are"


def layer_output_to_boundary(ids: Sequence[int], context: ConversionContext) -> tuple[list[int], str]:
    """Id L names the output of layer L, which is boundary L + 1 (-1, the embedding output, is boundary 0)."""
    return [i + 1 for i in ids], "layer outputs, +1"


def eagle_config_ids_to_boundary(ids: Sequence[int], context: ConversionContext) -> tuple[list[int], str]:
    """Ids nested in ``eagle_config`` follow two conventions; the ids tell which.

    The highest id equal to the target's layer count can only be a boundary; a first id of 1 is the trainers' default
    ``[1, L // 2 - 1, L - 4]`` of layer outputs; anything else is read as boundaries.
    """
    if context.target_layers is not None and max(ids, default=0) == context.target_layers:
        return list(ids), "boundary ids: the highest equals the target's layer count"
    if ids and ids[0] == 1:
        return [i + 1 for i in ids], "layer outputs, +1: the first id is 1"
    return list(ids), "boundary ids: the first id is not 1"


def negate(value: bool, context: ConversionContext) -> tuple[bool, str]:
    """The checkpoint states the opposite."""
    return not value, "negated"


def minus_one(value: int, context: ConversionContext) -> tuple[int, str]:
    """The checkpoint counts one more."""
    return value - 1, "-1"


def plus_one(value: int, context: ConversionContext) -> tuple[int, str]:
    """The checkpoint counts one less."""
    return value + 1, "+1"


def length(value: Sequence[Any], context: ConversionContext) -> tuple[int, str]:
    """The number of entries."""
    return len(value), "number of entries"


def lower(value: str, context: ConversionContext) -> tuple[str, str]:
    """Spelt in lower case."""
    return value.lower(), "lower case"


def strip_torch(value: str, context: ConversionContext) -> tuple[str, str]:
    """A dtype name without the leading ``torch.``."""
    return value.removeprefix("torch."), "dtype name"


def rope_name(value: str, context: ConversionContext) -> tuple[str, str]:
    """The name transformers gives a rotary variant today; ``mrope`` is the default one with sections."""
    return {"mrope": "default", "su": "longrope"}.get(value, value), "rotary variant"


CONVERSIONS: dict[str, Conversion] = {
    function.__name__: function
    for function in (
        boundary, layer_output_to_boundary, eagle_config_ids_to_boundary, negate, minus_one, plus_one, length, lower, strip_torch, rope_name, rope_name,
    )
}  # fmt: skip
# What a conversion reads, where that differs from the fact's own type.
INPUT_TYPES = {"length": "list<any>"}
