"""Every kernel against its PyTorch reference, on the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.inputs import Batch, make_batch
from specdec_kernels.accept import accept
from specdec_kernels.block_verify import block_verify
from specdec_kernels.categorical import categorical
from specdec_kernels.fused_verify import fused_verify
from specdec_kernels.gather_drafts import gather_drafts
from specdec_kernels.ngram_match import ngram_match
from specdec_kernels.residual_sample import residual_sample
from specdec_kernels.row_stats import row_stats

# different orders of summation move a cumulative sum across u in a few draws of many
TOKEN_MISMATCH_SHARE = 0.02


def run(
    quick: bool = False,
    device: str = "cuda",
    backends: tuple[str, str] = ("torch", "triton"),
    until: float = float("inf"),
) -> list[dict[str, Any]]:
    """One row per operation and case: {"op", "case", "equal", "detail"}; no new case after ``until`` (monotonic)."""
    sizes = [(4, 3, 32_003, torch.bfloat16, 3)] if quick else [
        (4, 3, 32_003, torch.bfloat16, 3), (16, 5, 151_936, torch.bfloat16, 0), (3, 7, 262_144, torch.float32, 0)
    ]  # fmt: skip
    out = []
    for num_requests, k, vocab_size, dtype, pad in sizes:
        if time.monotonic() > until:
            break
        batch = make_batch(num_requests, k, vocab_size, dtype, device, pad)
        batch.target[0, 5] = float("nan")
        batch.target[k + 1] = -torch.inf
        case = f"R={num_requests} k={k} V={vocab_size} {str(dtype)[6:]}" + (" odd stride" if pad else "")
        for name, operation in _operations(batch, k).items():
            try:
                equal, detail = _compare(operation(backends[0]), operation(backends[1]))
            except Exception as error:  # a kernel that does not launch is a finding, and the others still run
                equal, detail = False, f"{type(error).__name__}: {error}"[:200]
            out.append({"op": name, "case": case, "equal": equal, "detail": detail})
    return out


def _operations(b: Batch, k: int) -> dict[str, Callable[[str], tuple[torch.Tensor, ...]]]:
    t = b.temperature[b.request.long()]
    per_request = (b.row_start, b.temperature, b.seeds, b.positions)
    # plans and draws start from the same statistics, so that only the kernel under test differs
    stats = row_stats(b.target, t, b.judged, backend="torch")
    laws = row_stats(b.draft, b.temperature.repeat_interleave(k), b.drafts.flatten(), backend="torch")
    plan = accept(
        stats.token_logprob, stats.argmax, b.drafts, b.counts, *per_request,
        draft_logprob=laws.token_logprob.view(-1, k), backend="torch",
    )  # fmt: skip
    slots = torch.zeros_like(b.request, dtype=torch.int64)
    history = b.drafts.new_tensor([[1, 2, 3] * 100] * len(b.drafts))
    lengths = torch.full((len(b.drafts),), 299, device=b.drafts.device)

    def row_statistics(backend: str) -> tuple[torch.Tensor, ...]:
        s = row_stats(b.target, t, b.judged, backend=backend)
        return s.maximum, s.lse, s.argmax, s.token_logprob

    def draw(gumbel: bool) -> Callable[[str], tuple[torch.Tensor, ...]]:
        keys = (b.seeds[b.request.long()], torch.arange(len(t), device=t.device), slots, 4)
        return lambda backend: (categorical(b.target, t, *keys, gumbel=gumbel, backend=backend),)

    def judge(backend: str) -> tuple[torch.Tensor, ...]:
        p = accept(
            stats.token_logprob, stats.argmax, b.drafts, b.counts, *per_request,
            draft_logprob=laws.token_logprob.view(-1, k), backend=backend,
        )  # fmt: skip
        return p.num_accepted, p.kind, p.token

    def judge_block(backend: str) -> tuple[torch.Tensor, ...]:
        kw = {"draft": b.draft, "draft_stats": laws, "backend": backend}
        p = block_verify(b.target, stats, b.drafts, b.counts, *per_request, **kw)
        return p.num_accepted, p.kind, p.token, p.rho

    def correct(gumbel: bool) -> Callable[[str], tuple[torch.Tensor, ...]]:
        kw = {"draft": b.draft, "draft_stats": laws, "k": k, "gumbel": gumbel}
        return lambda backend: (residual_sample(b.target, stats, plan, *per_request, backend=backend, **kw),)

    def fused(backend: str) -> tuple[torch.Tensor, ...]:
        return fused_verify(
            b.target, b.drafts, b.counts, b.row_start, b.request, *per_request[1:], backend=backend
        )  # fmt: skip

    def gather(backend: str) -> tuple[torch.Tensor, ...]:
        rows = gather_drafts(b.seeds, b.drafts, b.counts, b.row_start, b.positions, len(t), backend=backend)
        return rows.input_ids, rows.positions, rows.request, rows.judged

    def lookup(backend: str) -> tuple[torch.Tensor, ...]:
        return (ngram_match(history, lengths, min_n=2, max_n=5, k=k, backend=backend),)

    return {
        "row_stats": row_statistics, "categorical inverse CDF": draw(False), "categorical Gumbel": draw(True),
        "accept": judge, "block_verify": judge_block, "residual_sample inverse CDF": correct(False),
        "residual_sample Gumbel": correct(True), "fused_verify": fused, "gather_drafts": gather, "ngram_match": lookup,
    }  # fmt: skip


def _compare(want: tuple[torch.Tensor, ...], got: tuple[torch.Tensor, ...]) -> tuple[bool, str]:
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        if a.is_floating_point():
            if not torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
                return False, f"output {i}: largest difference {float((a - b).abs().nan_to_num().max()):.3g}"
        else:
            share = float((a != b).float().mean()) if a.numel() else 0.0
            if share > max(TOKEN_MISMATCH_SHARE, 1.5 / max(a.numel(), 1)):
                return False, f"output {i}: {share:.1%} of ids differ"
    return True, ""
