"""Philox4x32-10 on Python integers: the check for the vectorised forms, and the fastest form for a single draw."""

from __future__ import annotations

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF


def philox_words(seed: int, c0: int, c1: int, c2: int, c3: int) -> tuple[int, int, int, int]:
    """Four 32-bit words of the 64-bit key ``seed`` (negative seeds wrap) and a 4 x 32-bit counter.

    Source: Salmon et al. 2011, the variant that Random123 calls philox4x32-10.
    """
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    m0, m1 = MULTIPLIERS
    for _ in range(ROUNDS):
        left, right = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (right >> 32) ^ c1 ^ k0, right & MASK, (left >> 32) ^ c3 ^ k1, left & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def uniform_from_words(w0: int, w1: int) -> float:
    """A double in (0, 1), never 0 or 1, from 52 of the 64 bits."""
    return (((w0 << 20) | (w1 >> 12)) + 0.5) * 2.0**-52


def uniform(seed: int, position: int, slot: int, role: int) -> float:
    """The uniform of one (request seed, position, round slot, role)."""
    w0, w1, _, _ = philox_words(seed, 0, position, slot, role)
    return uniform_from_words(w0, w1)
