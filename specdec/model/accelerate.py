"""Make a target's forward fast on the CPU, in place, without changing what its modules accept and return."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from specdec_kernels.cpu.arena import Arena
from specdec_kernels.cpu.build import NativeUnavailable, load
from specdec_kernels.cpu.native import (
    NativeLayer,
    NativeLinear,
    NativeNorm,
    StepArguments,
    arena_for,
    packed_bytes,
    supports_linear,
)
from torch import nn

from specdec.model.memory import free_bytes
from specdec.model.native.assemble import build_stack, find_parts
from specdec.model.native.match import computes_the_same, layer_parts, rms_norm_of, signature
from specdec.model.native.stack import NativeStack, StackParts

if TYPE_CHECKING:
    from specdec.model.target import Target

logger = logging.getLogger(__name__)
MODES = ("auto", "off")
# Above this many tokens oneDNN's matrix units win, where the CPU has them; the kernels here are for decode steps.
MANY_TOKENS = 64
# Weights are repacked for the kernels, up to twice as fast, when the copies take at most this share of free memory.
PACKED_SHARE = 0.5


@dataclass
class Acceleration:
    """What ``accelerate`` replaced: counts of modules, bytes of repacked weights, and why nothing was."""

    layers: int = 0
    linears: int = 0
    norms: int = 0
    packed_bytes: int = 0
    reason: str = ""
    modules: list[nn.Module] = field(default_factory=list, repr=False)
    stack_parts: StackParts | None = field(default=None, repr=False)
    stack: NativeStack | None = field(default=None, repr=False)  # built and checked when first asked for


def acceleration(model: nn.Module) -> Acceleration | None:
    """The report of the last ``accelerate``, None if the model runs as loaded."""
    return model.__dict__.get("_specdec_acceleration")


def accelerate(model: nn.Module, *, max_batch: int = 1, mode: str = "auto") -> None:
    """Replace the forwards of decoder layers, linear maps and RMS norms by native CPU kernels where they compute the same.

    A layer is replaced only if its parts are those of a pre-norm rotary decoder layer *and* a float32 copy of it gives the
    same result on random input; other layers keep their code and get native linear maps. Call it after loading, and again
    after changing weights: where memory allows, the kernels read a repacked copy of them (``packed_bytes`` of the report).
    Without a C++ compiler, on another device or with other dtypes the model stays as it is.
    ``max_batch`` is the largest number of rows in a forward; it does not limit anything. ``mode="off"`` restores the model.
    """
    if mode not in MODES:
        raise ValueError(f"acceleration mode {mode!r} is not one of: {', '.join(MODES)}")
    restore(model)
    report = Acceleration()
    model.__dict__["_specdec_acceleration"] = report
    if mode == "off":
        report.reason = "turned off"
        return
    if any(p.device.type != "cpu" for p in model.parameters()):
        report.reason = "the model is not on the CPU"
        return
    try:
        load()
    except NativeUnavailable as error:
        report.reason = str(error)
        logger.warning("running the stock CPU kernels, several times slower: %s", error)
        return
    maps = [m for m in model.modules() if type(m) is nn.Linear and supports_linear(m)]
    size = sum(packed_bytes(m) for m in maps)
    arena = arena_for(maps) if size <= PACKED_SHARE * (free_bytes(torch.device("cpu")) or 0) else None
    report.packed_bytes = size if arena else 0
    layers, inside = _replace_layers(model, report, arena)
    linears: dict[nn.Module, NativeLinear] = {}
    for module in model.modules():
        if module in inside or "forward" in vars(module):
            continue
        if type(module) is nn.Linear and supports_linear(module):
            linears[module] = NativeLinear(module, arena)
            _install(report, module, _linear_forward(module, linears[module]))
            report.linears += 1
        elif (norm := rms_norm_of(module)) is not None:
            _install(report, module, _norm_forward(module, NativeNorm(norm, module.weight.dtype)))
            report.norms += 1
    report.stack_parts = find_parts(model, layers, linears)


def native_stack(target: Target) -> NativeStack | None:
    """All layers of an accelerated target as one call; None where the model is more, or other, than that."""
    report = acceleration(target.model)
    if report is None or report.stack_parts is None:
        return None
    if report.stack is None:
        limit = MANY_TOKENS if target.dtype == torch.bfloat16 and _has_matrix_units() else None
        report.stack = build_stack(target, report.stack_parts, limit)
        if report.stack is None:
            report.stack_parts = None
    return report.stack


def restore(model: nn.Module) -> None:
    """Undo ``accelerate``."""
    report: Acceleration | None = model.__dict__.pop("_specdec_acceleration", None)
    for module in report.modules if report else ():
        vars(module).pop("forward", None)


def _install(report: Acceleration, module: nn.Module, forward: Callable[..., Any]) -> None:
    module.__dict__["forward"] = forward
    report.modules.append(module)


def _replace_layers(
    model: nn.Module, report: Acceleration, arena: Arena | None
) -> tuple[dict[nn.Module, NativeLayer], set[nn.Module]]:
    """Replace decoder layers; returns their native counterparts, and all modules inside the replaced ones."""
    step = StepArguments()
    verdicts: dict[Any, bool] = {}
    replaced: dict[nn.Module, NativeLayer] = {}
    inside: set[nn.Module] = set()
    for module in model.modules():
        parts = layer_parts(module) if module not in inside else None
        if parts is None:
            continue
        key = signature(module)
        if key not in verdicts:
            verdicts[key] = computes_the_same(module, lambda copied: _copied_forward(copied, arena is not None))
        if verdicts[key]:
            inside.update(module.modules())
            replaced[module] = NativeLayer(parts, step, arena)
            _install(report, module, _layer_forward(module, replaced[module]))
            report.layers += 1
    return replaced, inside


def _copied_forward(layer: nn.Module, pack: bool) -> Callable[..., Any] | None:
    parts = layer_parts(layer)
    if parts is None:
        return None
    return _layer_forward(
        layer, NativeLayer(parts, StepArguments(), arena_for(parts.linears.values()) if pack else None)
    )


def _has_matrix_units() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _Replay:
    """Stands in for a cache that was already updated in this forward."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.states = (keys, values)

    def update(self, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.states


def _layer_forward(layer: nn.Module, native: NativeLayer) -> Callable[..., Any]:
    stock, many, step = type(layer).forward, _has_matrix_units(), native.step
    index, is_bf16 = native.parts.layer_idx, native.dtype == torch.bfloat16

    def forward(
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: Any = None,
        **kwargs: Any,
    ) -> Any:
        x, rows, queries = hidden_states, hidden_states.shape[0], hidden_states.shape[1]
        tables = None
        if not torch.is_grad_enabled() and not (many and is_bf16 and rows * queries > MANY_TOKENS):
            tables = native.prepare(x, position_embeddings)
        if tables is None:
            return stock(layer, x, attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache,
                         past_key_values=past_key_values, position_embeddings=position_embeddings, **kwargs)  # fmt: skip
        q, kv = native.project(x, tables)
        keys, values = kv[0].transpose(1, 2), kv[1].transpose(1, 2)
        if past_key_values is not None:
            keys, values = past_key_values.update(keys, values, index)
        if native.reads(keys, values, rows):
            mask = step.mask(attention_mask, rows, queries, keys.shape[2])
            if mask is not None:
                return native.finish(x, q, keys, values, mask)
        replay = _Replay(keys, values)
        return stock(layer, x, attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache,
                     past_key_values=replay, position_embeddings=position_embeddings, **kwargs)  # fmt: skip

    return forward


def _linear_forward(module: nn.Linear, native: NativeLinear) -> Callable[[torch.Tensor], torch.Tensor]:
    many = _has_matrix_units() and module.weight.dtype == torch.bfloat16

    def forward(input: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() or input.dtype != native.dtype or (many and input.numel() > MANY_TOKENS * native.k):
            return nn.functional.linear(input, module.weight, module.bias)
        return native(input)

    vars(forward)["native"] = native  # modules are copied with their forwards, and an attribute of theirs could not be
    return forward


def native_linear(module: nn.Module) -> NativeLinear | None:
    """The kernel that an accelerated model runs a linear map in, whose repacked weight others may share."""
    return getattr(vars(module).get("forward"), "native", None)


def _norm_forward(module: nn.Module, native: NativeNorm) -> Callable[[torch.Tensor], torch.Tensor]:
    stock = type(module).forward

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() or hidden_states.dtype != native.dtype:
            return stock(module, hidden_states)
        return native(hidden_states)

    return forward
