"""Coupled verification: the target draws its own token at every position, drafts are guesses of that token."""

from __future__ import annotations

from specdec.verify.round import Round


def coupled(r: Round) -> list[int]:
    """Emit the target's own draws up to the first that differs from its draft.

    The output is that of plain decoding with the same seed, whatever the drafter, k or batch.
    Source: arXiv 2408.07978.
    """
    emitted: list[int] = []
    for row in range(len(r.drafts) + 1):
        emitted.append(r.draw_target(row))
        if row == len(r.drafts) or emitted[-1] != r.drafts[row]:
            break
    return emitted
