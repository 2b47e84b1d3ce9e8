"""Achieved bytes per second of each kernel, next to a plain copy on the same device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from specdec.verify import Verifier

from benchmarks.inputs import make_batch
from specdec_kernels.categorical import categorical
from specdec_kernels.fused_verify import fused_verify
from specdec_kernels.ngram_match import ngram_match
from specdec_kernels.row_stats import row_stats


def median_seconds(call: Callable[[], Any], repeats: int = 20) -> float:
    """Median device time of a call, with a cold L2 cache."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]


def copy_bandwidth() -> float:
    """Bytes read and written per second by a copy of 1 GiB."""
    source = torch.empty(2**30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / median_seconds(lambda: target.copy_(source), 10)


def run(quick: bool = False, until: float = float("inf")) -> list[dict[str, Any]]:
    """One row per operation and size: {"op", "case", "us", "bytes_per_s"}; bytes are what must be read once.

    No new size after ``until`` (monotonic seconds).
    """
    out = []
    sizes = [(1, 3), (32, 3)] if quick else [(1, 3), (1, 15), (8, 3), (64, 7), (256, 3)]
    for num_requests, k in sizes:
        if time.monotonic() > until:
            break
        vocab_size = 151_936
        b = make_batch(num_requests, k, vocab_size, torch.bfloat16, "cuda")
        case = f"R={num_requests} k={k} V={vocab_size} bf16"
        t = b.temperature[b.request.long()]
        row, drafts = 2 * vocab_size, b.draft.view(num_requests, k, vocab_size)
        keys = (b.seeds[b.request.long()], torch.arange(len(t), device="cuda"), torch.zeros_like(b.judged), 4)
        batch = {"temperature": b.temperature, "seeds": b.seeds, "positions": b.positions, "num_drafts": b.counts}

        def verifier(
            mode: str, laws: torch.Tensor | None, draw: str = "inverse_cdf", b: Any = b, kw: Any = batch
        ) -> Any:
            call = Verifier(mode, draw=draw)
            return lambda: call(b.target, b.drafts, draft_laws=laws, **kw)

        def fused(b: Any = b) -> Any:
            return fused_verify(
                b.target, b.drafts, b.counts, b.row_start, b.request, b.temperature, b.seeds, b.positions
            )  # fmt: skip

        rows, kept = num_requests * (k + 1), num_requests * k
        cases: list[tuple[str, Callable[[], Any], int]] = [
            ("row_stats", lambda b=b, t=t: row_stats(b.target, t, b.judged), rows * row),
            ("categorical inverse CDF", lambda b=b, t=t, kk=keys: categorical(b.target, t, *kk), rows * row),
            ("categorical Gumbel", lambda b=b, t=t, kk=keys: categorical(b.target, t, *kk, gumbel=True), rows * row),
            ("fused_verify", fused, rows * row),
            ("torch argmax (baseline)", lambda b=b: b.target.argmax(-1), rows * row),
            ("torch softmax (baseline)", lambda b=b: torch.softmax(b.target, -1, dtype=torch.float32), rows * row),
            ("verify one-hot", verifier("standard", None), rows * row),
            ("verify full q", verifier("standard", drafts), (rows + kept) * row),
            ("verify block", verifier("block", drafts), (rows + kept) * row),
            ("verify coupled Gumbel", verifier("coupled", None, "gumbel"), rows * row),
        ]
        for name, call, size in cases:
            seconds = median_seconds(call)
            out.append({"op": name, "case": case, "us": seconds * 1e6, "bytes_per_s": size / seconds})
        del b
        torch.cuda.empty_cache()
    history = torch.randint(0, 1000, (64, 32_768), device="cuda", dtype=torch.int32)
    lengths = torch.full((64,), 32_000, device="cuda")
    seconds = median_seconds(lambda: ngram_match(history, lengths, min_n=2, max_n=4, k=8))
    size = history.numel() * 4
    out.append({"op": "ngram_match", "case": "R=64 L=32000", "us": seconds * 1e6, "bytes_per_s": size / seconds})
    return out
