"""Synthetic acceptance (lossy): accept at given rates, to time an engine at a chosen accepted length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec.verify import laws
from specdec.verify.round import Round, residual_token


def synthetic(rates: Sequence[float]) -> Callable[[Round], list[int]]:
    """A rule that accepts draft i with unconditional rate ``rates[i]`` at any temperature; its text is meaningless."""
    conditional = laws.conditional_rates(rates)

    def rule(r: Round) -> list[int]:
        for row in range(len(r.drafts)):
            if not r.accept(row, conditional[row] if row < len(conditional) else 0.0):
                return [*r.drafts[:row], residual_token(r, row)]
        return [*r.drafts, r.draw_target(len(r.drafts))]

    return rule
