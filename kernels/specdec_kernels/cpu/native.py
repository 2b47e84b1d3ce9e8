"""The kernels as Python callables: one linear map, one RMS norm, one decoder layer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from ctypes import POINTER, Structure, addressof, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch

from specdec_kernels.cpu.arena import Arena
from specdec_kernels.cpu.build import load

SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}
BLOCK = 16  # the kernels read weights in blocks of 16 elements; must equal BLOCK in kernels.cpp
MAX_HEAD_DIM = 1024
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


class _Linear(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("weight", "bias", "panels")],
        *[(name, c_int32) for name in ("n", "k")],
    ]


class _Layer(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("norm1", "norm2", "q_norm", "k_norm")],
        *[(name, c_float) for name in ("eps1", "eps2", "eps_q", "eps_k", "scale")],
        *[(name, c_int32) for name in ("heads", "kv_heads", "head_dim", "activation")],
        *[(name, _Linear) for name in LINEARS],
    ]


class _View(Structure):
    _fields_ = [("data", c_void_p), ("row", c_int64), ("head", c_int64), ("pos", c_int64)]


class _Mask(Structure):
    _fields_ = [("data", c_void_p), ("row", c_int64), ("query", c_int64), ("kind", c_int32), ("pad", c_int32)]


_P, _I = c_void_p, c_int
_SIGNATURES = {
    "linear": [_P, _P, _P, _I, _I],
    "pack": [_P, _P, _I, _I],
    "norm": [_P, c_float, _I, _P, _P, _I],
    "attn_in": [_P, _P, _P, _P, c_int64, _P, _P, _I, _I],
    "attn_out": [_P, _P, POINTER(_View), POINTER(_View), POINTER(_Mask), _P, _P, _I, _I, _I, _I],
}


def native_function(name: str, dtype: torch.dtype, arguments: list[Any]) -> Callable[..., None]:
    """The kernel ``name`` for a dtype."""
    function: Any = getattr(load(), f"{name}_{SUFFIX[dtype]}")
    function.argtypes, function.restype = arguments, None
    return function  # type: ignore[no-any-return]


def _function(name: str, dtype: torch.dtype) -> Callable[..., None]:
    return native_function(name, dtype, _SIGNATURES[name])


@dataclass(frozen=True)
class Norm:
    """An RMS norm: ``x / sqrt(mean(x^2) + eps) * scale`` with a float32 scale [n]."""

    scale: torch.Tensor
    eps: float


@dataclass(frozen=True)
class LayerParts:
    """What a pre-norm decoder layer with grouped-query attention and a gated MLP consists of."""

    input_norm: Norm | None  # None = the layer reads the residual stream as it is
    post_norm: Norm
    q_norm: Norm | None
    k_norm: Norm | None
    linears: dict[str, torch.nn.Linear]  # q, k, v, o, gate, up, down
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    activation: int  # 0 silu, 1 tanh-gelu
    layer_idx: int


def supports_linear(module: torch.nn.Linear) -> bool:
    """Whether the kernels can run this map: contiguous float32 or bfloat16 on the CPU, inputs a multiple of 16."""
    w, b = module.weight, module.bias
    plain = w.dtype in SUFFIX and w.device.type == "cpu" and w.layout == torch.strided and w.is_contiguous()
    return plain and w.shape[1] % BLOCK == 0 and (b is None or (b.dtype == w.dtype and b.is_contiguous()))


def packed_bytes(module: torch.nn.Linear) -> int:
    """What a repacked copy of the weight takes."""
    n, k = module.weight.shape
    return -(-n // BLOCK) * BLOCK * k * module.weight.element_size()


def arena_for(modules: Iterable[torch.nn.Linear]) -> Arena:
    """Room for repacked copies of these maps' weights."""
    return Arena(Arena.room_for([packed_bytes(module) for module in modules]))


def _panels(module: torch.nn.Linear, arena: Arena) -> torch.Tensor:
    """A copy of the weight [n, k] in the kernels' order: [ceil(n / 16), k, 16], of the same dtype."""
    n, k = module.weight.shape
    panels = arena.take((-(-n // BLOCK), k, BLOCK), module.weight.dtype)
    _function("pack", panels.dtype)(module.weight.data_ptr(), panels.data_ptr(), n, k)
    return panels


def _linear_spec(module: torch.nn.Linear, panels: torch.Tensor | None) -> _Linear:
    bias = module.bias.data_ptr() if module.bias is not None else None
    return _Linear(
        module.weight.data_ptr(), bias, panels.data_ptr() if panels is not None else None, *module.weight.shape
    )


class NativeLinear:
    """``x [..., k] -> [..., n]``, each row summed in float32 in an order that does not depend on the other rows.

    With an ``arena`` it keeps a copy of the weight there, which the kernels read up to twice as fast and which does not
    see later changes.
    """

    def __init__(self, module: torch.nn.Linear, arena: Arena | None = None) -> None:
        self.dtype, self.n, self.k = module.weight.dtype, *module.weight.shape
        panels = _panels(module, arena) if arena else None
        self.packed = panels is not None
        self.weight = module.weight
        self._keep = (module.bias, panels)
        self._spec = _linear_spec(module, panels)
        self._call, self.address = _function("linear", self.dtype), addressof(self._spec)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty((*x.shape[:-1], self.n), dtype=self.dtype)
        self._call(self.address, x.data_ptr(), out.data_ptr(), x.numel() // self.k, torch.get_num_threads())
        return out


class NativeNorm:
    """RMS norm over the last dimension."""

    def __init__(self, norm: Norm, dtype: torch.dtype) -> None:
        self.norm, self.dtype, self.n = norm, dtype, norm.scale.numel()
        self._call = _function("norm", dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        self._call(self.norm.scale.data_ptr(), self.norm.eps, self.n, x.data_ptr(), out.data_ptr(), x.numel() // self.n)
        return out


class StepArguments:
    """Mask and rotary tables of the current forward, converted once and shared by all layers of a model."""

    def __init__(self) -> None:
        self._mask_source: tuple[Any, ...] = ()
        self._mask: _Mask | None = None
        self._rotary_source: tuple[Any, ...] = ()
        self._rotary: tuple[torch.Tensor, torch.Tensor] | None = None

    def mask(self, mask: torch.Tensor | None, rows: int, queries: int, kv: int) -> _Mask | None:
        """The mask [rows | 1, 1, queries, kv] for the kernels, None if they cannot read it."""
        source = (mask, rows, queries, kv)
        if len(self._mask_source) == 4 and mask is self._mask_source[0] and source[1:] == self._mask_source[1:]:
            return self._mask
        self._mask_source, self._mask = source, _convert_mask(mask, rows, queries, kv)
        return self._mask

    def rotary(
        self, tables: Any, rows: int, queries: int, layer: NativeLayer
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """cos and sin, each contiguous [rows, queries, head_dim], None if they have another shape."""
        if len(self._rotary_source) == 2 and tables is self._rotary_source[0] and self._rotary_source[1] == rows:
            return self._rotary
        self._rotary_source, self._rotary = (tables, rows), None
        if isinstance(tables, tuple) and len(tables) == 2:
            cos, sin = tables
            shape = (rows, queries, layer.parts.head_dim)
            if cos.ndim == 3 and cos.shape[1:] == shape[1:] and cos.shape[0] in (1, rows) and cos.dtype == layer.dtype:
                self._rotary = (cos.expand(shape).contiguous(), sin.expand(shape).contiguous())
        return self._rotary


_MASK_KINDS = {torch.bool: 1, torch.float32: 2, torch.bfloat16: 3}


def _convert_mask(mask: torch.Tensor | None, rows: int, queries: int, kv: int) -> _Mask | None:
    if mask is None:  # transformers means "causal"; with cached tokens before several queries it means something else
        return _Mask(None, 0, 0, 0, 0) if queries in (1, kv) else None
    if not isinstance(mask, torch.Tensor) or mask.ndim != 4 or mask.dtype not in _MASK_KINDS:
        return None
    if mask.shape[0] not in (1, rows) or mask.shape[1] != 1 or mask.shape[2:] != (queries, kv) or mask.stride(3) != 1:
        return None
    row = mask.stride(0) if mask.shape[0] > 1 else 0
    return _Mask(mask.data_ptr(), row, mask.stride(2), _MASK_KINDS[mask.dtype], 0)


class NativeLayer:
    """A decoder layer in two kernel calls, before and after the cache update; ``arena`` as in ``NativeLinear``."""

    def __init__(self, parts: LayerParts, step: StepArguments, arena: Arena | None = None) -> None:
        self.parts, self.step, self.packed = parts, step, arena is not None
        self.dtype = parts.linears["q"].weight.dtype
        self.hidden = parts.linears["q"].weight.shape[1]
        p, zero = parts, Norm(torch.empty(0), 0.0)
        self._panels = {name: _panels(module, arena) for name, module in p.linears.items()} if arena else {}
        input_norm, q_norm, k_norm = p.input_norm or zero, p.q_norm or zero, p.k_norm or zero
        self._spec = _Layer(
            input_norm.scale.data_ptr() or None,
            p.post_norm.scale.data_ptr(),
            q_norm.scale.data_ptr() or None,
            k_norm.scale.data_ptr() or None,
            *(input_norm.eps, p.post_norm.eps, q_norm.eps, k_norm.eps, p.scale),
            *(p.heads, p.kv_heads, p.head_dim, p.activation),
            *(_linear_spec(p.linears[name], self._panels.get(name)) for name in LINEARS),
        )
        self.address = addressof(self._spec)
        self._attn_in, self._attn_out = _function("attn_in", self.dtype), _function("attn_out", self.dtype)

    def prepare(self, x: torch.Tensor, tables: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The rotary tables if the kernels can run this input [rows, queries, hidden], else None."""
        if x.ndim != 3 or x.dtype != self.dtype or not x.is_contiguous() or x.numel() == 0:
            return None
        return self.step.rotary(tables, x.shape[0], x.shape[1], self)

    def project(self, x: torch.Tensor, tables: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Norm, q/k/v, rotary: queries (kernel layout) and keys-values [2, rows, queries, kv_heads, head_dim]."""
        p, (rows, queries, _) = self.parts, x.shape
        cos, sin = tables
        q = torch.empty(rows * queries * p.heads * p.head_dim, dtype=torch.float32)
        kv = torch.empty((2, rows, queries, p.kv_heads, p.head_dim), dtype=self.dtype)
        self._attn_in(self.address, x.data_ptr(), cos.data_ptr(), sin.data_ptr(), p.head_dim, q.data_ptr(), kv.data_ptr(),
                      rows * queries, torch.get_num_threads())  # fmt: skip
        return q, kv

    def finish(
        self, x: torch.Tensor, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: _Mask
    ) -> torch.Tensor:
        """Attention over keys and values [rows, kv_heads, kv, head_dim], then the MLP, both with their residuals."""
        out = torch.empty_like(x)
        rows, queries, _ = x.shape
        k = _View(keys.data_ptr(), *keys.stride()[:3])
        v = _View(values.data_ptr(), *values.stride()[:3])
        self._attn_out(self.address, q.data_ptr(), k, v, mask, x.data_ptr(), out.data_ptr(), rows, queries, keys.shape[2],
                       torch.get_num_threads())  # fmt: skip
        return out

    def reads(self, keys: torch.Tensor, values: torch.Tensor, rows: int) -> bool:
        """Whether the cache returned something the kernels can read."""
        return all(
            t.ndim == 4 and t.dtype == self.dtype and t.stride(3) == 1 and t.shape[3] == self.parts.head_dim
            and t.shape[0] == rows and t.shape[1] == self.parts.kv_heads
            for t in (keys, values)
        )  # fmt: skip


def load_kernels() -> ctypes.CDLL:
    """Build or load the kernels now. Raises ``NativeUnavailable``."""
    return load()
