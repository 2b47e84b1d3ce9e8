"""Philox4x32-10 on int64 tensors: uniforms for decisions and Gumbel noise for whole vocabularies."""

from __future__ import annotations

import torch

from specdec_kernels.philox.words import MASK, MULTIPLIERS, ROUNDS, WEYL


def philox(
    seed: torch.Tensor, c0: torch.Tensor, c1: torch.Tensor, c2: torch.Tensor, c3: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four words in [0, 2**32) as int64, shaped like the broadcast of key ``seed`` and the counters (all int64)."""
    k0, k1 = seed & MASK, (seed >> 32) & MASK
    m0, m1 = MULTIPLIERS
    for _ in range(ROUNDS):
        # the low 64 bits of the product are exact under wrap-around; the mask undoes the arithmetic shift
        left, right = c0 * m0, c2 * m1
        c0, c1, c2, c3 = (
            ((right >> 32) & MASK).bitwise_xor(c1 ^ k0),
            right & MASK,
            ((left >> 32) & MASK).bitwise_xor(c3 ^ k1),
            left & MASK,
        )
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def uniform(seeds: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, role: int) -> torch.Tensor:
    """Doubles in (0, 1), one per (seed, position, slot) of equal shape, for one role."""
    zero = torch.zeros_like(seeds)
    w0, w1, _, _ = philox(seeds, zero, positions.long(), slots.long(), zero + role)
    return (((w0 << 20) | (w1 >> 12)).double() + 0.5) * 2.0**-52


def gumbel_from_words(words: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise, float32, at most 22.9; large values come from the fine end of the 32-bit source."""
    u = (words.float() + 0.5).mul_(2.0**-32).clamp_(max=1.0 - 2.0**-24)
    return u.neg_().log1p_().neg_().log_().neg_()


def gumbel_groups(
    seeds: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, role: int, groups: torch.Tensor
) -> torch.Tensor:
    """Noise [N, G, 4] of the tokens 4g..4g+3 for the N keys and the token groups [G]."""
    column = [x.long()[:, None] for x in (seeds, positions, slots)]
    words = philox(column[0], groups.long()[None, :], column[1], column[2], torch.full_like(column[0], role))
    return gumbel_from_words(torch.stack(words, dim=-1))


def gumbel(
    seeds: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, role: int, vocab_size: int
) -> torch.Tensor:
    """Noise [N, vocab_size] float32 for N keys; one counter feeds four neighbouring tokens."""
    groups = torch.arange((vocab_size + 3) // 4, device=seeds.device)
    return gumbel_groups(seeds, positions, slots, role, groups).flatten(1)[:, :vocab_size]
