"""Verification of a whole batch by kernels, without a transfer to the host."""

from __future__ import annotations

from typing import Any

import torch
from specdec_kernels.accept import accept
from specdec_kernels.block_verify import block_verify
from specdec_kernels.categorical import categorical
from specdec_kernels.fused_verify import fused_verify
from specdec_kernels.gather_drafts import gather_drafts
from specdec_kernels.residual_sample import residual_sample
from specdec_kernels.row_stats import row_stats

from specdec.verify.modes import Kernel, Mode
from specdec.verify.noise import Role

# at or below this batch, launches are expected to cost more than reading the logits; not measured yet
FUSED_MAX_REQUESTS = 8


def verify_on_device(
    mode: Mode,
    target: torch.Tensor,
    draft_ids: torch.Tensor,
    draft_logits: torch.Tensor | None,
    num_drafts: Any,
    temperature: Any,
    seeds: Any,
    positions: Any,
    gumbel: bool,
    backend: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids [R, K + 1], counts [R] and invalid [R] on the device of ``target`` [N, V]."""
    device, (num_requests, k), num_rows = target.device, draft_ids.shape, len(target)

    def on_device(values: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(values, device=device).to(dtype)

    temperature, seeds = on_device(temperature, torch.float32), on_device(seeds, torch.int64)
    positions = on_device(positions, torch.int64)
    if num_drafts is not None:
        counts = on_device(num_drafts, torch.int32)
    elif num_rows == num_requests * (k + 1):
        counts = torch.full((num_requests,), k, dtype=torch.int32, device=device)
    else:
        counts = (draft_ids >= 0).int().cumprod(1).sum(1, dtype=torch.int32)
    row_start = torch.cumsum(counts + 1, 0, dtype=torch.int32) - counts - 1
    # the last tokens do not matter here: only the judged drafts and owners of the rows are used
    rows = gather_drafts(seeds, draft_ids, counts, row_start, positions, num_rows, backend=backend)
    request = rows.request.long()
    batch = (row_start, temperature, seeds, positions)
    one_hot = draft_logits is None or k == 0
    chain_only = mode.kernel is Kernel.CHAIN and mode.rates is None and one_hot and not gumbel
    if chain_only and num_requests <= FUSED_MAX_REQUESTS:
        return fused_verify(
            target, draft_ids, counts, row_start, rows.request, temperature, seeds, positions, backend=backend
        )
    stats = row_stats(target, temperature[request], rows.judged, backend=backend)
    draft = draft_stats = None
    if not one_hot:
        assert draft_logits is not None
        draft = draft_logits.reshape(num_requests * k, -1)
        draft_stats = row_stats(draft, temperature.repeat_interleave(k), draft_ids.reshape(-1), backend=backend)
    if mode.kernel is Kernel.BLOCK:
        plan = block_verify(
            target, stats, draft_ids, counts, *batch, draft=draft, draft_stats=draft_stats, backend=backend
        )
    else:
        local = torch.arange(num_rows, device=device) - row_start.long()[request]
        own = None
        if mode.kernel is Kernel.COUPLED:
            noise = (seeds[request], positions[request] + local, torch.zeros_like(request), Role.TARGET)
            own = categorical(target, temperature[request], *noise, gumbel=gumbel, backend=backend)
        plan = accept(
            stats.token_logprob, stats.argmax, draft_ids, counts, *batch,
            draft_logprob=None if draft_stats is None else draft_stats.token_logprob.view(num_requests, k),
            rates=_padded_rates(mode, k, device), target_draw=own, backend=backend,
        )  # fmt: skip
    drawn = residual_sample(
        target, stats, plan, *batch, draft=draft, draft_stats=draft_stats, k=k, gumbel=gumbel, backend=backend
    )
    column, accepted = torch.arange(k + 1, device=device)[None], plan.num_accepted.long()[:, None]
    padded = torch.nn.functional.pad(draft_ids, (0, 1), value=-1)
    ids = torch.where(column < accepted, padded, torch.where(column == accepted, drawn[:, None], -1))
    local = torch.arange(num_rows, device=device) - row_start.long()[request]
    bad = (stats.maximum == -torch.inf) & (local <= plan.num_accepted.long()[request])
    invalid = torch.zeros(num_requests, dtype=torch.int32, device=device).index_add(0, request, bad.int()) > 0
    return ids, plan.num_accepted.long() + 1, invalid


def _padded_rates(mode: Mode, k: int, device: torch.device) -> torch.Tensor | None:
    if mode.rates is None:
        return None
    return torch.tensor([*mode.rates[:k], *[0.0] * (k - len(mode.rates))], dtype=torch.float32, device=device)
