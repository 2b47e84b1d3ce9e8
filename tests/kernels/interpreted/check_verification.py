"""Kernels against their references, and the kernel pipeline against the eager rules that the exact proofs cover."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from specdec_kernels.accept import accept
from specdec_kernels.block_verify import block_verify
from specdec_kernels.categorical import categorical
from specdec_kernels.fused_verify import fused_verify
from specdec_kernels.gather_drafts import gather_drafts
from specdec_kernels.residual_sample import residual_sample
from specdec_kernels.row_stats import row_stats

from specdec.verify import Verifier, device_round

PLAN = ("num_accepted", "kind", "token", "rho")


def batch(vocab_size=701, dtype=torch.float32, seed=0, greedy=False, broken=False, draft_vocab=None):
    """Four ragged requests whose drafts are drawn from laws near the target's; one has a placeholder."""
    generator = torch.Generator().manual_seed(seed)
    counts, k = torch.tensor([3, 3, 1, 0], dtype=torch.int32), 3
    starts = torch.tensor([0, 4, 8, 10], dtype=torch.int32)
    target = (torch.randn(11, vocab_size + 3, generator=generator) * 2).to(dtype)[:, :vocab_size]
    draft = torch.randn(4 * k, draft_vocab or vocab_size, generator=generator)
    size = min(vocab_size, draft.shape[1])
    for r, n in enumerate(counts.tolist()):
        for i in range(n):
            noise = 0.4 * torch.randn(size, generator=generator)
            draft[r * k + i, :size] = target[int(starts[r]) + i, :size].float() + noise
    draft = draft.to(dtype)
    temperature = torch.tensor([0.0, 0.7, 0.0, 1.0]) if greedy else torch.tensor([0.9, 0.7, 1.0, 0.8])
    seeds, positions = torch.arange(4) + seed * 10, torch.arange(4) * 5 + 2
    slots = torch.arange(k).repeat(4) + 1
    every = [x.repeat_interleave(k) for x in (temperature, seeds, positions)]
    drafts = categorical(draft, *every[:2], every[2] + slots - 1, slots, 1, backend="torch").view(4, k)
    drafts[1, 2] = -1
    if broken:
        target[0], target[5, 3], target[8] = float("nan"), float("nan"), -torch.inf
    rows = gather_drafts(seeds, drafts, counts, starts, positions, 11, backend="torch")
    return SimpleNamespace(
        target=target, draft=draft, drafts=drafts, counts=counts, starts=starts, request=rows.request,
        judged=rows.judged, temperature=temperature, seeds=seeds, positions=positions, every=every, k=k,
    )  # fmt: skip


def judge_and_draw(b, mode, full_q, gumbel, backend):
    block = 512 if b.target.shape[1] < 10_000 else 16_384
    t = b.temperature[b.request.long()]
    stats = row_stats(b.target, t, b.judged, block_size=block, backend=backend)
    laws = row_stats(b.draft, b.every[0], b.drafts.flatten(), block_size=block, backend=backend) if full_q else None
    draft = b.draft if full_q else None
    per_request = (b.starts, b.temperature, b.seeds, b.positions)
    if mode == "block":
        kw = {"draft": draft, "draft_stats": laws, "backend": backend}
        plan = block_verify(b.target, stats, b.drafts, b.counts, *per_request, **kw)
    else:
        plan = accept(
            stats.token_logprob, stats.argmax, b.drafts, b.counts, *per_request, backend=backend,
            draft_logprob=laws.token_logprob.view(4, b.k) if full_q else None,
            rates=torch.tensor([0.9, 0.8, 0.3]) if mode == "synthetic" else None,
            target_draw=(stats.argmax + 1) % b.target.shape[1] if mode == "coupled" else None,
        )  # fmt: skip
    kw = {"draft": draft, "draft_stats": laws, "k": b.k, "gumbel": gumbel, "backend": backend}
    return plan, residual_sample(b.target, stats, plan, *per_request, **kw)


CASES = [
    ("standard", False),
    ("standard", True),
    ("block", False),
    ("block", True),
    ("synthetic", False),
    ("coupled", False),
]


@pytest.mark.parametrize("gumbel", [False, True])
@pytest.mark.parametrize(("mode", "full_q"), CASES)
def test_plans_and_draws(mode, full_q, gumbel):
    b = batch(seed=1 + gumbel, broken=True, greedy=gumbel, dtype=torch.float32 if gumbel else torch.bfloat16)
    (plan_a, drawn_a), (plan_b, drawn_b) = (judge_and_draw(b, mode, full_q, gumbel, k) for k in ("torch", "triton"))
    for name in PLAN:
        torch.testing.assert_close(getattr(plan_b, name), getattr(plan_a, name), rtol=1e-4, atol=1e-6)
    assert drawn_a.tolist() == drawn_b.tolist()


def test_large_vocabularies():
    b = batch(32_003, torch.bfloat16, seed=3, draft_vocab=32_000)
    for mode in ("standard", "block"):
        (_, a), (_, c) = (judge_and_draw(b, mode, True, False, k) for k in ("torch", "triton"))
        assert a.tolist() == c.tolist()


def test_the_largest_vocabulary():
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(2, 262_147, generator=generator).bfloat16()[:, :262_144]
    x[0, 200_000] = 14.0
    one = [torch.tensor([n], dtype=torch.int32) for n in (1, 0)]
    inputs = (x, torch.tensor([[200_000]]), *one, torch.zeros(2, dtype=torch.int32), torch.tensor([0.9]))
    for seed in (1, 2):
        key = torch.tensor([seed]), torch.tensor([5])
        a, b = (fused_verify(*inputs, *key, block_size=65_536, backend=k) for k in ("torch", "triton"))
        assert a[0].tolist() == b[0].tolist() and a[1].tolist() == b[1].tolist()


@pytest.mark.parametrize("kw", [{"greedy": True}, {"broken": True}], ids=str)
def test_fused_verify(kw):
    for seed in range(2):
        b = batch(seed=seed, dtype=torch.bfloat16, **kw)
        for r in range(4):  # make some one-hot drafts likely
            for i in range(int(b.counts[r])):
                if seed and b.drafts[r, i] >= 0:
                    b.target[int(b.starts[r]) + i, b.drafts[r, i]] += 9
        inputs = (b.target, b.drafts, b.counts, b.starts, b.request, b.temperature, b.seeds, b.positions)
        a, c = (fused_verify(*inputs, block_size=512, backend=k) for k in ("torch", "triton"))
        for x, y in zip(a, c, strict=True):
            assert torch.equal(x, y)


def test_fused_verify_without_drafts_is_plain_sampling():
    x = torch.randn(3, 300)
    inputs = (torch.zeros(3, dtype=torch.int32), torch.arange(3, dtype=torch.int32), torch.arange(3, dtype=torch.int32))
    t, seeds, positions = torch.tensor([0.0, 1.0, 0.5]), torch.arange(3), torch.arange(3) + 9
    ids, count, invalid = fused_verify(
        x, torch.empty(3, 0, dtype=torch.int64), *inputs, t, seeds, positions, block_size=512, backend="triton"
    )
    drawn = categorical(x, t, seeds, positions, torch.zeros(3).long(), 4, backend="torch")
    assert ids[:, 0].tolist() == drawn.tolist() and count.tolist() == [1, 1, 1] and not invalid.any()


PIPELINES = [(*case, draw, False) for case in CASES for draw in ("inverse_cdf", "gumbel")]
PIPELINES.append(("standard", False, "inverse_cdf", True))


@pytest.mark.parametrize(("mode", "full_q", "draw", "fused"), PIPELINES)
def test_pipeline_equals_the_eager_rules(mode, full_q, draw, fused, monkeypatch):
    monkeypatch.setattr(device_round, "FUSED_MAX_REQUESTS", 8 if fused else 0)
    b = batch(seed=7 + fused, broken=fused)
    options = {"rates": [0.9, 0.8, 0.3]} if mode == "synthetic" else {}
    out = [
        Verifier(mode, draw=draw, backend=backend, **options)(
            b.target, b.drafts, temperature=b.temperature, seeds=b.seeds, positions=b.positions, num_drafts=b.counts,
            draft_laws=b.draft.view(4, b.k, -1) if full_q else None,
        )
        for backend in ("torch", "triton")
    ]  # fmt: skip
    for name in ("token_ids", "num_sampled", "invalid"):
        assert torch.equal(getattr(out[0], name), getattr(out[1], name))
