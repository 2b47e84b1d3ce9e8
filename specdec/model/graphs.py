"""Decode steps as CUDA graphs, captured on first use per (batch bucket, width, KV bucket).

A step fits a graph when its requests hold the cache's first rows. It is padded to the bucket: missing requests and
columns are padding that sits at position 0 and writes to the cache's bin. Everything a graph reads lives in buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from specdec.model.attention import Mask
from specdec.model.batch import Batch
from specdec.model.capture import HiddenStateCapture
from specdec.model.kv_cache import CachePlan, SlotCache
from specdec.model.target import Target

SMALLEST_KV = 256  # positions; buckets double from here
WARM_UPS = 2  # runs before capture, so that libraries have made their choices
# turns a function into something that replays it
Recorder = Callable[[Callable[[], torch.Tensor]], tuple[torch.Tensor, Callable[[], None]]]


def cuda_recorder(device: torch.device) -> Recorder:
    """Captures functions as CUDA graphs that share one memory pool."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Callable[[], None]]:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                run()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = run()
        return logits, graph.replay

    return record


@dataclass
class _Step:
    """One captured step and its buffers."""

    input_ids: torch.Tensor  # [B, W]
    positions: torch.Tensor  # [B, W]
    writes: torch.Tensor  # [B, W]
    mask: Mask  # [B, 1, W, kv] per kind
    kv_len: int
    replay: Callable[[], None] | None = None
    logits: torch.Tensor | None = None  # [B, W, V]
    last: torch.Tensor | None = None
    aux: torch.Tensor | None = None


class DecodeGraphs:
    """Runs decode steps from graphs; ``run`` returns None for steps that do not fit one."""

    def __init__(
        self,
        target: Target,
        cache: SlotCache,
        max_width: int,
        capture: HiddenStateCapture | None = None,
        record: Recorder | None = None,
    ) -> None:
        self.target, self.cache, self.max_width, self.capture = target, cache, max_width, capture
        self.record = record or cuda_recorder(target.device)
        self.steps: dict[tuple[int, int, int], _Step] = {}

    def run(self, batch: Batch) -> torch.Tensor | None:
        """Logits [R, rows_needed, V] of a decode step; None when it must run eagerly."""
        plan, layers = batch.padded.plan, self.cache.layers
        if plan.rows is not None or plan.first_row != 0 or batch.width > self.max_width:
            return None
        if not layers[0].is_initialized:  # later ones may read its keys and values and have none
            return None
        size = min(_power_of_two(plan.num_rows), self.cache.max_rows)
        width = self.padded_width(batch.width)
        kv_len = min(max(_power_of_two(plan.kv_len), SMALLEST_KV), self.cache.capacity)
        key = (size, width, kv_len)
        if key not in self.steps:
            self.steps[key] = self._buffers(*key)
        step = self.steps[key]
        self._fill(step, batch)
        if step.replay is None:
            self._record(step)
        else:
            step.replay()
        if self.capture is not None:
            self.capture.put(_trim(step.last, plan.num_rows, batch.width), _trim(step.aux, plan.num_rows, batch.width))
        assert step.logits is not None
        return step.logits[: plan.num_rows, -batch.rows_needed :]

    def padded_width(self, width: int) -> int:
        """Columns that a step of this width is padded to."""
        return min(_power_of_two(width), self.max_width)

    def _buffers(self, size: int, width: int, kv_len: int) -> _Step:
        zeros = torch.zeros(size, width, dtype=torch.int64, device=self.target.device)
        mask = self.target.layout.mask(zeros, kv_len, self.target.dtype)
        return _Step(zeros.clone(), zeros.clone(), torch.full_like(zeros, self.cache.bin), mask, kv_len)

    def _fill(self, step: _Step, batch: Batch) -> None:
        padded = batch.padded
        rows, width = padded.input_ids.shape
        writes = padded.plan.positions if padded.plan.positions is not None else padded.positions
        for buffer, values, empty in (
            (step.input_ids, padded.input_ids, 0),
            (step.positions, padded.positions, 0),
            (step.writes, writes, self.cache.bin),
        ):
            buffer.fill_(empty)
            buffer[:rows, -width:] = values
        _copy(step.mask, self.target.layout.mask(step.positions, step.kv_len, self.target.dtype))

    def _record(self, step: _Step) -> None:
        size = step.input_ids.shape[0]
        column = torch.arange(size, device=self.target.device)[:, None]
        plan = CachePlan(0, size, step.kv_len, None, positions=step.writes, row_column=column)

        def run() -> torch.Tensor:
            width = step.input_ids.shape[1]
            return self.target.forward(self.cache, plan, step.input_ids, step.positions, width, step.mask)

        step.logits, step.replay = self.record(run)
        if self.capture is not None:
            step.last, step.aux = self.capture.take()
        step.replay()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _trim(states: torch.Tensor | None, rows: int, width: int) -> torch.Tensor | None:
    # a replay overwrites the buffer, and a speculator may keep what it was given
    return None if states is None else states[:rows, -width:].clone()


def _copy(buffer: Any, values: Any) -> None:
    if isinstance(buffer, dict):
        for kind, tensor in buffer.items():
            tensor.copy_(values[kind])
    else:
        buffer.copy_(values)
