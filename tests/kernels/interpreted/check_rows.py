from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from specdec_kernels.categorical import categorical
from specdec_kernels.device import gumbel_block, uniform
from specdec_kernels.philox import reference as philox
from specdec_kernels.row_stats import row_stats

FIELDS = ("maximum", "lse", "argmax", "token_logprob", "block_max", "block_sum")


def rows(n, vocab_size, dtype=torch.float32, pad=5, seed=0):
    """Rows whose stride is odd."""
    x = torch.randn(n, vocab_size + pad, generator=torch.Generator().manual_seed(seed)) * 3
    return x.to(dtype)[:, :vocab_size]


@pytest.mark.parametrize(
    ("vocab_size", "block_size", "dtype"),
    [
        (1001, 256, torch.float32),
        (1024, 256, torch.bfloat16),
        (3, 256, torch.float16),
        (32_003, 8192, torch.bfloat16),
        (262_144, 65_536, torch.bfloat16),
    ],
)
def test_row_stats(vocab_size, block_size, dtype):
    x = rows(3, vocab_size, dtype)
    t, tokens = torch.tensor([0.7, 1.0, 0.0]), torch.tensor([vocab_size - 1, -1, vocab_size])
    a, b = (row_stats(x, t, tokens, block_size=block_size, backend=k) for k in ("torch", "triton"))
    for name in FIELDS:
        torch.testing.assert_close(getattr(b, name), getattr(a, name), rtol=2e-5, atol=2e-5)


def test_row_stats_of_broken_rows():
    x = rows(5, 700)
    x[0, 5] = float("nan")
    x[1] = float("nan")
    x[2] = -torch.inf
    x[3, 600] = torch.inf
    x[4, [20, 300, 650]] = 50.0
    tokens = torch.tensor([5, 0, 1, 600, 300])
    a, b = (row_stats(x, torch.ones(5), tokens, block_size=256, backend=k) for k in ("torch", "triton"))
    for name in FIELDS:
        torch.testing.assert_close(getattr(b, name), getattr(a, name))
    assert b.argmax.tolist()[1:] == [0, 0, 600, 20]
    assert b.token_logprob.tolist()[:3] == [-torch.inf, 0.0, -torch.inf]


@pytest.mark.parametrize("gumbel", [False, True])
@pytest.mark.parametrize(
    ("vocab_size", "block_size", "dtype"), [(701, 256, torch.float32), (32_003, 16_384, torch.bfloat16)]
)
def test_categorical(vocab_size, block_size, dtype, gumbel):
    x = rows(8, vocab_size, dtype, seed=1)
    x[1] = -torch.inf
    x[2, 7] = float("nan")
    x[3, : vocab_size - 2] = -torch.inf
    t = torch.tensor([0.8, 1.0, 1.3, 1.0, 0.0, 1e-6, 1.0, 0.9])
    keys = (torch.arange(8) * 2**40 - 5, torch.arange(8) * 1000, torch.arange(8) % 3)
    a = categorical(x, t, *keys, 1, gumbel=gumbel, backend="torch")
    b = categorical(x, t, *keys, 1, gumbel=gumbel, backend="triton", block_size=block_size)
    assert a.tolist() == b.tolist()
    assert b[1] == 0 and b[3] >= vocab_size - 2 and b[4] == x[4].argmax()


def test_draws_do_not_depend_on_the_block_size():
    x = rows(3, 1999, seed=4)
    keys = (torch.arange(3), torch.arange(3), torch.arange(3))
    for gumbel in (False, True):
        drawn = [
            categorical(x, torch.ones(3), *keys, 4, gumbel=gumbel, backend="triton", block_size=size).tolist()
            for size in (256, 1024)
        ]
        assert drawn[0] == drawn[1]


@triton.jit
def noise_kernel(seed, position, u, g, BLOCK: tl.constexpr):
    key, place = tl.load(seed), tl.load(position)
    slot, role = place * 0 + 3, place * 0 + 2
    tl.store(u, uniform(key, place, slot, role))
    tl.store(g + tl.arange(0, BLOCK), gumbel_block(key, place, slot, role, 64, BLOCK))


def test_noise_equals_the_reference():
    for seed in (0, 1, -1, 2**62 + 12_345, -(2**55)):
        key = torch.tensor([seed]), torch.tensor([1_000_003])
        u, g = torch.zeros(1, dtype=torch.float64), torch.zeros(256)
        noise_kernel[(1,)](*key, u, g, BLOCK=256)
        slot = torch.tensor([3])
        assert torch.equal(u, philox.uniform(*key, slot, 2))
        torch.testing.assert_close(g, philox.gumbel(*key, slot, 2, 320)[0, 64:], rtol=1e-5, atol=1e-6)
