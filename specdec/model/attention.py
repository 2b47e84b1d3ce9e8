"""Which positions a row may see, for the attention kinds the engine can roll back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    CacheLayerMixin,
    LinearAttentionCacheLayerMixin,
    get_layer_types_and_kwargs,
)

from specdec.errors import TargetError

FULL, SLIDING = "full_attention", "sliding_attention"
SHARED = "dummy"  # transformers' word for a layer that reads an earlier layer's keys and values
# layers with a recurrent state, alone or beside attention of a kind
_STATEFUL = {n: c for n, c in DYNAMIC_LAYER_TYPE_MAPPING.items() if issubclass(c, LinearAttentionCacheLayerMixin)}
RECURRENT = frozenset(name for name, cls in _STATEFUL.items() if not issubclass(cls, CacheLayerMixin))
BESIDE = {name: SLIDING if cls.is_sliding else FULL for name, cls in _STATEFUL.items() if name not in RECURRENT}
Mask = torch.Tensor | dict[str, torch.Tensor] | None


@dataclass(frozen=True)
class AttentionLayout:
    """How the layers of a target attend."""

    num_layers: int
    kinds: tuple[str, ...]  # the distinct kinds
    window: int | None  # tokens visible to a sliding layer, itself included
    additive: bool  # attention adds the mask (eager); otherwise it is boolean, True = visible (sdpa)
    device: torch.device
    recurrent: tuple[int, ...] = ()  # layers with a recurrent state
    attending: int | None = None  # layers with keys and values; None = all

    @property
    def may_skip(self) -> bool:
        """Whether attention without a mask is causal."""
        return not self.additive

    @property
    def num_kv_layers(self) -> int:
        """Layers that keep keys and values."""
        return self.num_layers if self.attending is None else self.attending

    def mask(self, positions: torch.Tensor, kv_len: int, dtype: torch.dtype) -> Mask:
        """Mask [R, 1, W, kv_len] of queries at ``positions`` [R, W]; one per kind when the layers differ.

        A model whose layers are all alike takes a tensor and fails on a dict; a mixed one takes a dict.
        """
        keys = torch.arange(kv_len, device=positions.device)
        distance = positions[:, None, :, None] - keys  # [R, 1, W, kv_len]
        masks = {}
        for kind in self.kinds:
            visible = distance >= 0
            if kind == SLIDING and self.window is not None and kv_len > self.window:
                visible = visible & (distance < self.window)
            masks[kind] = self._encode(visible, dtype)
        if len(masks) == 1:
            return masks[self.kinds[0]]
        return masks | dict.fromkeys(RECURRENT) if self.recurrent else masks

    def _encode(self, visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not self.additive:
            return visible
        return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)

    def all_visible(self, kv_len: int) -> bool:
        """Whether no window hides anything among ``kv_len`` positions."""
        return self.window is None or SLIDING not in self.kinds or kv_len <= self.window


def layer_windows(model: Any) -> list[int]:
    """Positions that a query of each layer sees, itself included; 0 = all before it."""
    config = model.config.get_text_config(decoder=True)
    layer_types, layer_kwargs = get_layer_types_and_kwargs(config)
    return [kw.get("sliding_window") or 0 for _, kw in zip(layer_types, layer_kwargs, strict=True)]


def attention_layout(model: Any, device: torch.device) -> AttentionLayout:
    """The layout of a loaded target; raises ``TargetError`` for layer kinds whose state cannot be rolled back."""
    config = model.config.get_text_config(decoder=True)
    layer_types, layer_kwargs = get_layer_types_and_kwargs(config)
    windows = {kw["sliding_window"] for kw in layer_kwargs if kw.get("sliding_window") is not None}
    if len(windows) > 1:
        raise TargetError(
            f"the target's sliding layers have windows of different sizes ({sorted(windows)}); the embedded engine "
            "takes one size; run it with `specdec export vllm`"
        )
    return AttentionLayout(
        num_layers=len(layer_types),
        kinds=tuple(sorted({BESIDE.get(kind, kind) for kind in layer_types} - {SHARED} - RECURRENT)) or (FULL,),
        window=next(iter(windows), None),
        additive=config._attn_implementation == "eager",
        device=device,
        recurrent=tuple(i for i, kind in enumerate(layer_types) if kind in _STATEFUL),
        attending=sum(kind not in RECURRENT and kind != SHARED for kind in layer_types),
    )
