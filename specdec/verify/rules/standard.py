"""Standard rejection sampling, for one-hot drafts and for drafts sampled from a full law."""

from __future__ import annotations

from specdec.verify import laws
from specdec.verify.round import Round, residual_token


def standard(r: Round) -> list[int]:
    """Accept x_i with min(1, p/q); at the first rejection draw from max(p - q, 0); after the last draft draw from p."""
    for row, token in enumerate(r.drafts):
        if not r.accept(row, laws.standard_acceptance(r.target_prob(row, token), r.draft_prob(row, token))):
            return [*r.drafts[:row], residual_token(r, row)]
    return [*r.drafts, r.draw_target(len(r.drafts))]
