"""What a verification rule may ask about one request's round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from specdec.verify import laws


class Round(Protocol):
    """n drafted tokens x_0..x_{n-1} and n + 1 target rows; row i is the law of the token that draft i proposes.

    The engine's rounds hold tensors and seeded noise. The losslessness proofs hold fractions and branch on every
    decision. Rules see no difference.
    """

    drafts: Sequence[int]  # [n] token ids; an id outside the vocabulary has p = 0
    one_hot: bool  # the drafts were not sampled: q is all on the drafted token

    def argmax(self, row: int) -> int:
        """Most likely token of target row ``row``, the lowest id on ties."""

    def target_prob(self, row: int, token: int) -> Any:
        """p_row(token)."""

    def target_law(self, row: int) -> Any:
        """p_row as an array [V] that sums to 1."""

    def draft_prob(self, row: int, token: int) -> Any:
        """q_row(token); 1 for one-hot drafts."""

    def draft_law(self, row: int) -> Any:
        """q_row as an array [V]."""

    def accept(self, row: int, probability: Any) -> bool:
        """Decide draft ``row`` with this probability; one decision per row and round."""

    def entropy(self, row: int, top_k: int) -> float:
        """Entropy in nats of the ``top_k`` most likely tokens of target row ``row``, renormalised."""

    def draw_residual(self, row: int, weights: Any) -> int:
        """Draw the correction token of ``row`` in proportion to ``weights`` [V]."""

    def draw_target(self, row: int) -> int:
        """The target's own draw at ``row``, the same token that plain decoding draws there."""


def residual_token(r: Round, row: int) -> int:
    """The correction token after the rejection of draft ``row``."""
    p = r.target_law(row)
    weights = laws.without_token(p, r.drafts[row]) if r.one_hot else laws.residual(p, r.draft_law(row))
    return r.draw_residual(row, weights)
