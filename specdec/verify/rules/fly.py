"""Loose verification (lossy): forgive a rejection where the target was unsure and the drafts after it were accepted."""

from __future__ import annotations

from collections.abc import Callable

from specdec.verify import laws
from specdec.verify.round import Round, residual_token


def fly(
    window: int | None = None, entropy_threshold: float = 0.3, entropy_top_k: int = 3
) -> Callable[[Round], list[int]]:
    """A rule that forgives draft i if the target's top-k entropy there is at least ``entropy_threshold`` nats and the
    next ``window`` drafts (default min(6, n - 1)) are accepted natively. The output law is not the target's.
    """

    def rule(r: Round) -> list[int]:
        n = len(r.drafts)
        span = min(6, n - 1) if window is None else window
        p_x = [r.target_prob(row, x) for row, x in enumerate(r.drafts)]
        q_x = [r.draft_prob(row, x) for row, x in enumerate(r.drafts)]
        native = [r.accept(row, laws.standard_acceptance(p_x[row], q_x[row])) for row in range(n)]
        for row in range(n):
            if native[row]:
                continue
            vouched = 0 < span < n - row and all(native[row + 1 : row + 1 + span])
            if not (vouched and p_x[row] > 0 and q_x[row] > 0 and r.entropy(row, entropy_top_k) >= entropy_threshold):
                return [*r.drafts[:row], residual_token(r, row)]
        return [*r.drafts, r.draw_target(n)]

    return rule
