"""Device functions that rebuild a law from logits and row statistics."""

from __future__ import annotations

import triton
import triton.language as tl

from specdec_kernels.device import load_logits, scaled

ONE_HOT, DIFFERENCE = tl.constexpr(1), tl.constexpr(2)


@triton.jit
def law_block(logits, row, stride, offsets, vocab_size, maximum, lse, temperature):
    """Probabilities of one row at ``offsets``; a row without any finite logit has its law on token 0."""
    x = load_logits(logits, row, stride, offsets, vocab_size)
    p = tl.exp(scaled(x, maximum, temperature) - lse)
    return tl.where(maximum == float("-inf"), tl.where(offsets == 0, 1.0, 0.0), p)


@triton.jit
def weights_block(
    target, row, stride, vocab_size, maximum, lse, draft, draft_row, draft_stride, draft_vocab, draft_maximum,
    draft_lse, offsets, temperature, kind, token, rho, HAS_DRAFT_LAW: tl.constexpr,
):  # fmt: skip
    """Unnormalised weights of a draw at ``offsets``."""
    p = law_block(target, row, stride, offsets, vocab_size, maximum, lse, temperature)
    w = tl.where((kind == ONE_HOT) & (offsets == token), 0.0, p)
    if HAS_DRAFT_LAW:
        # requests of another kind read nothing: their draft vocabulary counts as empty
        size = tl.where(kind == DIFFERENCE, draft_vocab, 0)
        q = law_block(draft, draft_row, draft_stride, offsets, size, draft_maximum, draft_lse, temperature)
        w = tl.where(kind == DIFFERENCE, tl.maximum(rho * p - q, 0.0), w)
    return tl.where(offsets < vocab_size, w, 0.0)
