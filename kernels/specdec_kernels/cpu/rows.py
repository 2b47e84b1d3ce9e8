"""Tops, weights and draws of rows of logits by the compiled kernels: one call where PyTorch takes ten.

After a forward has streamed all weights through the caches, every further operation costs many times its warm time.
"""

from __future__ import annotations

import functools
from ctypes import c_double, c_float, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
import torch

from specdec_kernels.cpu import build

BLOCK = 256  # must equal ROW_BLOCK in rows.h
_SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}
_ARGUMENTS: dict[str, tuple[list[Any], Any]] = {
    "row_tops": ([c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_int], None),
    "row_weights": ([c_void_p, c_int64, c_float, c_float, c_void_p, c_void_p, c_int], None),
    "row_sample": ([c_void_p, c_int64, c_float, c_float, c_double, c_int], c_int64),
    "row_draw": ([c_void_p, c_int64, c_void_p, c_double], c_int64),
}


class NativeRows:
    """For rows [V] or [N, V] on the CPU whose last dimension is contiguous, in one dtype."""

    def __init__(self, library: Any, suffix: str) -> None:
        self._tops, self._weights, self._sample = (
            _function(library, name, suffix) for name in ("row_tops", "row_weights", "row_sample")
        )
        self._draw = _function(library, "row_draw", "f32")

    def tops(self, rows: torch.Tensor) -> tuple[list[float], list[int]]:
        """Maxima and lowest arg-maxima of rows [N, V]; the maximum of a row with NaN is NaN."""
        count, size = rows.shape
        maxima, tokens = (c_float * count)(), (c_int64 * count)()
        self._tops(rows.data_ptr(), rows.stride(0), count, size, maxima, tokens, torch.get_num_threads())
        return list(maxima), list(tokens)

    def weights(self, row: torch.Tensor, maximum: float, temperature: float) -> tuple[torch.Tensor, np.ndarray]:
        """exp((row - maximum) / temperature) [V], and the sums of its blocks."""
        size = row.shape[0]
        weights, masses = torch.empty(size), np.empty(-(-size // BLOCK))
        self._weights(
            row.data_ptr(), size, maximum, temperature, weights.data_ptr(), masses.ctypes.data, torch.get_num_threads()
        )
        return weights, masses

    def sample(self, row: torch.Tensor, maximum: float, temperature: float, u: float) -> int:
        """The draw from those weights, without keeping them."""
        return int(self._sample(row.data_ptr(), row.shape[0], maximum, temperature, u, torch.get_num_threads()))

    def draw(self, weights: torch.Tensor, masses: np.ndarray, u: float) -> int:
        """Inverse CDF of weights [V] with the sums of their blocks; -1 where there is no mass."""
        return int(self._draw(weights.data_ptr(), weights.shape[0], masses.ctypes.data, u))


def native_rows(rows: torch.Tensor) -> NativeRows | None:
    """The kernels for such rows, None where PyTorch has to do."""
    if rows.device.type != "cpu" or rows.stride(-1) != 1:
        return None
    return _by_dtype().get(rows.dtype)


@functools.lru_cache(maxsize=1)
def _by_dtype() -> dict[torch.dtype, NativeRows]:
    """Decided once a process: the two forms round differently, and one law must always have the same bits.

    Nothing is compiled here: that is worth it only where a forward needs it, and then it was done before.
    """
    library = build.loaded()
    if library is None:
        return {}
    return {dtype: NativeRows(library, suffix) for dtype, suffix in _SUFFIX.items()}


def _function(library: Any, name: str, suffix: str) -> Any:
    function = getattr(library, f"{name}_{suffix}")
    function.argtypes, function.restype = _ARGUMENTS[name]
    return function
