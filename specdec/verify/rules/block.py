"""Block verification: all drafts are judged together, which accepts more tokens than one by one."""

from __future__ import annotations

from typing import Any

from specdec.verify import laws
from specdec.verify.round import Round


def block(r: Round) -> list[int]:
    """Emit the longest prefix whose own test passes, then a token from max(rho p - q, 0). Source: arXiv 2403.10444.

    For one-hot drafts every residual mass has a closed form and the accepted length has the law of the standard rule.
    """
    n = len(r.drafts)
    rho = laws.block_prefix_mass(
        [r.target_prob(row, x) for row, x in enumerate(r.drafts)],
        [r.draft_prob(row, x) for row, x in enumerate(r.drafts)],
    )
    # longest first: the first test that passes is the maximum over all tests
    for length in range(n, 0, -1):
        h = rho[n] if length == n else laws.block_acceptance(rho[length], _residual_mass(r, length, rho[length]))
        if r.accept(length - 1, h):
            break
    else:
        length = 0
    if length == n:
        return [*r.drafts, r.draw_target(n)]
    return [*r.drafts[:length], r.draw_residual(length, _residual_law(r, length, rho[length]))]


def _residual_mass(r: Round, row: int, rho: Any) -> Any:
    if r.one_hot:
        return rho * (1 - r.target_prob(row, r.drafts[row]))
    return laws.residual(r.target_law(row), r.draft_law(row), rho).sum()


def _residual_law(r: Round, row: int, rho: Any) -> Any:
    p = r.target_law(row)
    return laws.without_token(p, r.drafts[row]) if r.one_hot else laws.residual(p, r.draft_law(row), rho)
