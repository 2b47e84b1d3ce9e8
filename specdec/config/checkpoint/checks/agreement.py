"""Two keys of one fact that say different things: one of them is wrong, and the checkpoint cannot say which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.facts.canonical import TENSOR_KEY, as_type, conversion_of, shown
from specdec.config.checkpoint.facts.convert import CONVERSIONS, INPUT_TYPES, ConversionContext
from specdec.config.checkpoint.facts.keys import find
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.record import FactSpec

EXACT_TYPES = ("integer", "number", "boolean", "string", "list<integer>")  # maps and lists of names differ in spelling


def check_agreement(context: CheckContext) -> Iterator[Diagnostic]:
    """Compares the keys of each fact, as the checkpoint wrote them, before any rewrite."""
    yield from disagreements(context.record.facts.values(), context.checkpoint, context.target("num_hidden_layers"))


def disagreements(
    specs: Iterable[FactSpec], checkpoint: Checkpoint, target_layers: int | None = None
) -> Iterator[Diagnostic]:
    """A finding for each fact that two keys of a config state differently."""
    for spec in specs:
        written = list(_written(spec, checkpoint, target_layers)) if spec.type in EXACT_TYPES else []
        for key, value in written[1:]:
            if value != written[0][1] and not _of_other_layers(key, written[0][0]):
                first, said = written[0]
                message = f"{key} says {shown(value)}, but {first} says {shown(said)}; both mean {spec.name}"
                fix = "keep the one it was trained with"
                yield finding("checkpoint-keys-disagree", f"{checkpoint.role}.{key}", message, fix)
                break


def _of_other_layers(key: str, other: str) -> bool:
    """Whether two keys differ in one step in the middle only: the same setting of two types of layers."""
    steps, others = key.split("."), other.split(".")
    differ = [i for i, (a, b) in enumerate(zip(steps, others, strict=False)) if a != b]
    return len(steps) == len(others) and differ == [1] and len(steps) == 3


def _written(spec: FactSpec, checkpoint: Checkpoint, target_layers: int | None) -> Iterator[tuple[str, Any]]:
    """Each key that the config has, with its canonical value; a key that picks from a list is only a last resort."""
    for key in spec.keys:
        hit = None if key.startswith(TENSOR_KEY) or "[" in key else find(checkpoint.config, key)
        conversion = conversion_of(spec, key)
        value = as_type(hit[1], spec.type) if hit and (conversion or "") not in INPUT_TYPES else None
        if hit is None or value is None:
            continue
        if conversion:
            value, _ = CONVERSIONS[conversion](value, ConversionContext(key, target_layers))
        yield hit[0], value
