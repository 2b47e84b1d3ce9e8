"""Device functions shared by the kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def clean(x):
    """float32 logits with NaN as -inf and +inf as a large finite value."""
    x = x.to(tl.float32)
    x = tl.where(x == x, x, float("-inf"))
    return tl.minimum(x, 3.0e38)


@triton.jit
def load_logits(base, row, stride, offsets, vocab_size):
    """Logits of one row at ``offsets``, cleaned; -inf outside the vocabulary."""
    inside = (offsets >= 0) & (offsets < vocab_size)
    x = tl.load(base + row.to(tl.int64) * stride + offsets, mask=inside, other=float("-inf"))
    return clean(x)


@triton.jit
def scaled(x, maximum, temperature):
    """(x - max) / T, and -inf for a row without any finite logit; T = 0 counts as 1."""
    t = tl.where(temperature > 0, temperature, 1.0)
    shift = tl.where(maximum == float("-inf"), 0.0, maximum)
    return (x - shift) / t


@triton.jit
def uniform(seed, position, slot, role):
    """A double in (0, 1) of a scalar key, from 52 bits of Philox4x32-10."""
    zero = position * 0
    w0, w1, _, _ = tl.philox(
        seed, zero.to(tl.uint32), position.to(tl.uint32), (zero + slot).to(tl.uint32), (zero + role).to(tl.uint32)
    )
    bits = (w0.to(tl.int64) << 20) | (w1.to(tl.int64) >> 12)
    return (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit
def gumbel(words):
    """Standard Gumbel noise of 32-bit words; large values come from the fine end of the source."""
    u = tl.minimum((words.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    # log1p(-u) without libdevice, which the interpreter lacks
    series = u * (1.0 + u * (0.5 + u * (0.33333333 + u * 0.25)))
    exponential = tl.where(u < 0.015625, series, -tl.log(1.0 - u))
    return -tl.log(exponential)


@triton.jit
def gumbel_block(seed, position, slot, role, start, BLOCK: tl.constexpr):
    """Noise of the BLOCK tokens from ``start``, a multiple of 4; one counter feeds four neighbouring tokens."""
    groups = (start // 4 + tl.arange(0, BLOCK // 4)).to(tl.uint32)
    zero = groups * 0
    w0, w1, w2, w3 = tl.philox(
        seed, groups, zero + position.to(tl.uint32), zero + slot.to(tl.uint32), zero + role.to(tl.uint32)
    )
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    return gumbel(tl.reshape(words, (BLOCK,)))
