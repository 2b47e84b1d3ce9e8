"""Greedy verification: the longest prefix of drafts that equal the target's argmax."""

from __future__ import annotations

from specdec.verify.round import Round


def greedy(r: Round) -> list[int]:
    """Accept while the draft is the argmax; emit the argmax at the first mismatch or after the last draft."""
    emitted: list[int] = []
    for row in range(len(r.drafts) + 1):
        emitted.append(r.argmax(row))
        if row == len(r.drafts) or emitted[-1] != r.drafts[row]:
            break
    return emitted
