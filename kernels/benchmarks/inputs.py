"""Random verification batches of production sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec_kernels.categorical import categorical
from specdec_kernels.gather_drafts import gather_drafts


@dataclass(frozen=True)
class Batch:
    """R requests with k drafts each; drafts are drawn from laws near the target's."""

    target: torch.Tensor  # [R * (k + 1), V]
    draft: torch.Tensor  # [R * k, V]
    drafts: torch.Tensor  # [R, k]
    counts: torch.Tensor
    row_start: torch.Tensor
    request: torch.Tensor
    judged: torch.Tensor
    temperature: torch.Tensor
    seeds: torch.Tensor
    positions: torch.Tensor


def make_batch(
    num_requests: int, k: int, vocab_size: int, dtype: torch.dtype, device: str, pad: int = 0, seed: int = 0
) -> Batch:
    """A batch on ``device``; ``pad`` columns make the row stride odd."""
    generator = torch.Generator(device=device).manual_seed(seed)
    num_rows = num_requests * (k + 1)
    wide = torch.randn(num_rows, vocab_size + pad, device=device, generator=generator) * 2
    target = wide.to(dtype)[:, :vocab_size]
    per_request = target.view(num_requests, k + 1, -1) if not pad else target.reshape(num_requests, k + 1, vocab_size)
    noise = torch.randn(num_requests, k, vocab_size, device=device, generator=generator) * 0.5
    draft = (per_request[:, :k].float() + noise).to(dtype).reshape(num_requests * k, vocab_size)
    temperature = torch.full((num_requests,), 0.8, device=device)
    temperature[::5] = 0.0
    seeds = torch.arange(num_requests, device=device) * 7 + 1
    positions = torch.arange(num_requests, device=device) * 3 + 10
    steps = torch.arange(k, device=device).repeat(num_requests)
    keys = (seeds.repeat_interleave(k), positions.repeat_interleave(k) + steps, steps + 1)
    drafts = categorical(draft, temperature.repeat_interleave(k), *keys, 1, backend="torch").view(num_requests, k)
    if num_requests > 2 and k > 1:
        drafts[2, -1] = -1
    counts = torch.full((num_requests,), k, dtype=torch.int32, device=device)
    row_start = torch.arange(num_requests, dtype=torch.int32, device=device) * (k + 1)
    rows = gather_drafts(seeds, drafts, counts, row_start, positions, num_rows, backend="torch")
    return Batch(
        target, draft, drafts, counts, row_start, rows.request, rows.judged, temperature, seeds, positions
    )  # fmt: skip
