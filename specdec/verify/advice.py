"""Which k pays: expected tokens and speed-up for every k, from measured acceptance and costs; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KChoice:
    """What drafting k tokens a round is expected to give."""

    k: int
    tokens_per_round: float  # 1 + the first k unconditional acceptance rates
    cost_per_round: float  # in units of one plain decoding step
    speedup: float  # tokens per unit of cost; plain decoding is 1


@dataclass(frozen=True)
class Advice:
    """The best k among those measured, 0 when speculation does not pay."""

    best_k: int
    choices: tuple[KChoice, ...]  # k = 0, 1, ...

    def explain(self) -> str:
        """A table for people, one line per k."""
        lines = [
            f"k={c.k}: {c.tokens_per_round:.2f} tokens a round, cost {c.cost_per_round:.2f}, speed-up {c.speedup:.2f}"
            + (" (best)" if c.k == self.best_k else "")
            for c in self.choices
        ]
        return "\n".join(lines)


def advise_k(
    acceptance: Sequence[float],
    *,
    draft_cost_ratio: float,
    verify_cost_ratio: float = 0.0,
    fixed_cost_ratio: float = 0.0,
) -> Advice:
    """Choose k from unconditional acceptance per position.

    ``acceptance[i]``: share of rounds in which draft i + 1 was accepted (with all before it); non-increasing.
    Costs are in units of one plain decoding step of the target: ``draft_cost_ratio`` per drafted token,
    ``verify_cost_ratio`` per extra row that the target verifies, ``fixed_cost_ratio`` per round with any draft.
    Ties go to the smaller k. Raises ValueError for rates outside [0, 1], rising rates or negative costs.
    """
    for i, rate in enumerate(acceptance):
        if not 0 <= rate <= 1:
            raise ValueError(f"acceptance rate {rate} at position {i + 1} is outside [0, 1]; give shares, not percent")
        if i and rate > acceptance[i - 1] + 1e-9:
            raise ValueError(
                f"acceptance rises from {acceptance[i - 1]} to {rate} at position {i + 1}; give unconditional rates, "
                "the share of all rounds in which the position was accepted"
            )
    for name, cost in (("draft", draft_cost_ratio), ("verify", verify_cost_ratio), ("fixed", fixed_cost_ratio)):
        if not 0 <= cost < math.inf:
            wrong = "negative" if cost < 0 else "no finite number"
            raise ValueError(f"{name}_cost_ratio {cost} is {wrong}; give it in units of one plain step, at least 0")
    choices = []
    tokens = 1.0
    for k in range(len(acceptance) + 1):
        tokens += acceptance[k - 1] if k else 0.0
        cost = 1.0 + k * (draft_cost_ratio + verify_cost_ratio) + (fixed_cost_ratio if k else 0.0)
        choices.append(KChoice(k, tokens, cost, tokens / cost))
    best = max(choices, key=lambda c: (c.speedup, -c.k))
    return Advice(best.k, tuple(choices))


def unconditional(conditional: Sequence[float]) -> list[float]:
    """Unconditional rates from the rates of each position given that all before it were accepted."""
    out, product = [], 1.0
    for rate in conditional:
        product *= rate
        out.append(product)
    return out
