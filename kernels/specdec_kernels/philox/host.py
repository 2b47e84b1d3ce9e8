"""Philox4x32-10 on NumPy arrays: several times faster than tensors for the vocabulary of one row on a CPU."""

from __future__ import annotations

import numpy as np

from specdec_kernels.philox.words import MASK, MULTIPLIERS, ROUNDS, WEYL


def philox_groups(seed: int, groups: np.ndarray, position: int, slot: int, role: int) -> np.ndarray:
    """Words [G, 4] int64 of the token groups [G] for one key."""
    mask, shift = np.uint64(MASK), np.uint64(32)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    c0 = groups.astype(np.uint64)
    c1, c2, c3 = (np.full_like(c0, x & MASK) for x in (position, slot, role))
    left, right = np.empty_like(c0), np.empty_like(c0)
    for _ in range(ROUNDS):
        np.multiply(c0, m0, out=left)
        np.multiply(c2, m1, out=right)
        np.right_shift(right, shift, out=c0)
        c0 ^= c1
        c0 ^= np.uint64(k0)
        np.right_shift(left, shift, out=c2)
        c2 ^= c3
        c2 ^= np.uint64(k1)
        np.bitwise_and(right, mask, out=c1)
        np.bitwise_and(left, mask, out=c3)
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return np.stack([c0, c1, c2, c3], axis=-1).view(np.int64)
