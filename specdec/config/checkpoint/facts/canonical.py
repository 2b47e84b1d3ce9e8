"""Reads canonical facts from a checkpoint: value, origin, and a finding for each value of the wrong type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from specdec.config.checkpoint.facts.convert import CONVERSIONS, INPUT_TYPES, ConversionContext
from specdec.config.checkpoint.facts.keys import find
from specdec.config.checkpoint.facts.tensor_names import normalised_shapes
from specdec.config.checkpoint.files.value import Checkpoint, Shape
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.record import FactSpec

TENSOR_KEY = "tensor:"  # ``tensor:fc.bias`` is presence, ``tensor:lm_head.weight[0]`` a length
_TENSOR_KEY = re.compile(r"tensor:(?P<name>[^\[]+)(?:\[(?P<axis>\d+)\])?")
_TYPE_WORDS = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "true or false", "map": "an object",
    "list<integer>": "a list of integers", "list<string>": "a list of strings", "list<any>": "a list",
}  # fmt: skip


def read_facts(
    specs: Mapping[str, FactSpec], checkpoint: Checkpoint, *, target_layers: int | None = None
) -> tuple[dict[str, Found], list[Diagnostic]]:
    """Fact name -> found value, absent facts left out. ``target_layers`` decides how nested aux layer ids are read."""
    shapes = normalised_shapes(checkpoint)
    found: dict[str, Found] = {}
    findings: list[Diagnostic] = []
    for name, spec in specs.items():
        value, finding = _read(spec, checkpoint, shapes, target_layers)
        if finding is not None:
            findings.append(finding)
        if value is not None:
            found[name] = value
    return found, findings


def _read(
    spec: FactSpec, checkpoint: Checkpoint, shapes: Mapping[str, Shape] | None, target_layers: int | None
) -> tuple[Found | None, Diagnostic | None]:
    for key in spec.keys:
        hit = _tensor_fact(key, shapes) if key.startswith(TENSOR_KEY) else find(checkpoint.config, key)
        if hit is None:
            continue
        written, raw = hit
        conversion = conversion_of(spec, key)
        expected = INPUT_TYPES.get(conversion or "", spec.type)
        value = as_type(raw, expected)
        if value is None:
            message = f"{written} is {shown(raw)}, expected {_TYPE_WORDS.get(expected, expected)}"
            return None, Diagnostic(
                "wrong-type", "error", f"{checkpoint.role}.{written}", message, fix="correct the config.json"
            )
        if spec.minimum is not None and isinstance(value, int) and value < spec.minimum:
            message = f"{written} is {value}, expected at least {spec.minimum}"
            at = f"{checkpoint.role}.{written}"
            return None, Diagnostic("out-of-range", "error", at, message, fix="correct the config.json")
        rule: tuple[str, ...] = ()
        if conversion:
            value, how = CONVERSIONS[conversion](value, ConversionContext(key, target_layers))
            rule = (how,)
        return Found(value, Origin("checkpoint", written, inputs=rule)), None
    missing = None
    if spec.required:
        message = f"the checkpoint does not state {spec.name} ({', '.join(k for k in spec.keys if not k.startswith(TENSOR_KEY))})"
        fix = f"add {spec.keys[0]} to its config.json"
        missing = Diagnostic("missing-checkpoint-field", "warning", f"{checkpoint.role}.{spec.name}", message, fix=fix)
    if spec.default_in_speculators_format is not None and in_speculators_format(checkpoint):
        return Found(spec.default_in_speculators_format, Origin("record", "default for the speculators format")), None
    if spec.has_default and spec.default is not None:
        return Found(spec.default, Origin("record", f"default of {checkpoint.role}.{spec.name}")), None
    return None, missing


EXTENDED = frozenset({"linear", "dynamic"})  # rotary variants whose factor stretches the positions of the config


def positions_of(facts: Mapping[str, Found], role: str) -> Found | None:
    """``max_position_embeddings``, times the factor of a rotary variant that stretches positions, as transformers does."""
    kind, factor, positions = (facts.get(n) for n in ("rope_type", "rope_factor", "max_position_embeddings"))
    if kind is None or factor is None or positions is None or kind.value not in EXTENDED or factor.value <= 1:
        return positions
    inputs = (f"{role}.max_position_embeddings", f"{role}.rope_factor")
    how = f"{positions.value} x {kind.value} factor {factor.value:g}"
    return Found(int(positions.value * factor.value), Origin("derived", how, inputs=inputs))


def in_speculators_format(checkpoint: Checkpoint) -> bool:
    """The config carries the marker keys of the speculators library."""
    return any(key in checkpoint.config for key in ("speculators_config", "speculators_model_type"))


def as_type(value: Any, type_name: str) -> Any:
    """The value as ``type_name`` (see FactSpec), or None. A bool is never a number; 8.0 is the integer 8."""
    if type_name == "any":
        return value
    if type_name == "boolean":
        return value if isinstance(value, bool) else None
    if type_name in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        return value if type_name == "number" else int(value) if value == int(value) else None
    if type_name == "string":
        return value if isinstance(value, str) else None
    if type_name == "map":
        return dict(value) if isinstance(value, Mapping) else None
    inner = type_name.removeprefix("list<").removesuffix(">")
    if not isinstance(value, (list, tuple)):
        return None
    typed = [as_type(item, inner) for item in value]
    return None if any(item is None for item in typed) else typed


def conversion_of(spec: FactSpec, key: str) -> str | None:
    return spec.key_converts.get(key, spec.convert)


def _tensor_fact(key: str, shapes: Mapping[str, Shape] | None) -> tuple[str, Any] | None:
    match = _TENSOR_KEY.fullmatch(key)
    if match is None or shapes is None or match["name"] not in shapes:
        return None
    shape = shapes[match["name"]]
    if match["axis"] is None:
        return f"tensor {match['name']}", True
    axis = int(match["axis"])
    return (f"tensor {match['name']}", shape[axis]) if axis < len(shape) else None


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
