"""Acceptance probabilities and residual laws, written with operators only.

The sampler evaluates them on floats and float tensors; the losslessness tests evaluate the same functions on
fractions and object arrays, so what is proved is what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def positive(x: Any) -> Any:
    """max(x, 0), elementwise."""
    return x * (x > 0)


def at_most_one(x: Any) -> Any:
    """min(x, 1), elementwise."""
    return x * (x < 1) + (x >= 1)


def ratio(numerator: Any, denominator: Any, when_zero: Any) -> Any:
    """numerator / denominator, and ``when_zero`` where the denominator is 0."""
    zero = denominator == 0
    return numerator / (denominator + zero) * (denominator != 0) + when_zero * zero


def standard_acceptance(p_x: Any, q_x: Any) -> Any:
    """Probability to accept x ~ q: min(1, p(x) / q(x)). Source: arXiv 2211.17192, 2302.01318.

    p(x) = 0 always rejects; q(x) = 0 accepts when p(x) > 0 (such a draft was not drawn from q).
    """
    return at_most_one(ratio(p_x, q_x, p_x > 0))


def residual(p: Any, q: Any, rho: Any = 1) -> Any:
    """Unnormalised law of the correction token: max(rho * p - q, 0). Block verification scales p by rho."""
    return positive(rho * p - q)


def without_token(p: Any, token: int) -> Any:
    """Unnormalised law of the correction token for a one-hot draft: p with ``token`` removed."""
    out = p * 1
    if 0 <= token < len(out):
        out[token] = 0
    return out


def block_prefix_mass(p_x: Sequence[Any], q_x: Sequence[Any]) -> list[Any]:
    """rho_0..rho_k: rho_0 = 1, rho_i = min(1, rho_{i-1} p_i(x_i) / q_i(x_i)). Source: arXiv 2403.10444."""
    rho: list[Any] = [1]
    for p, q in zip(p_x, q_x, strict=True):
        rho.append(at_most_one(ratio(rho[-1] * p, q, (rho[-1] * p) > 0)))
    return rho


def block_acceptance(rho: Any, residual_mass: Any) -> Any:
    """Probability h_i that a block may end after i < k tokens: R / (R + 1 - rho), 0/0 counts as 1.

    ``residual_mass`` is the sum over y of max(rho_i p_{i+1}(y) - q_{i+1}(y), 0).
    """
    return ratio(residual_mass, residual_mass + 1 - rho, 1)


def conditional_rates(unconditional: Sequence[float]) -> list[float]:
    """Acceptance rate of each position given that all before it were accepted; 0 after a rate of 0."""
    out, previous = [], 1.0
    for rate in unconditional:
        out.append(rate / previous if previous > 0 else 0.0)
        previous = rate
    return out


def rates_for_length(length: float, k: int) -> list[float]:
    """Unconditional rates of mean emitted length ``length`` in [1, k + 1], least variance: ones, a fraction, zeros."""
    return [min(1.0, max(0.0, length - 1 - i)) for i in range(k)]
