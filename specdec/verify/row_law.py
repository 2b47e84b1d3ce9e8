"""The law of one row of logits at a temperature, and draws from it, on whatever device the row lives."""

from __future__ import annotations

import numpy as np
import torch
from specdec_kernels.cpu.rows import native_rows
from specdec_kernels.philox import host
from specdec_kernels.philox import reference as philox

from specdec.verify.row_tops import row_tops

BLOCK = 256  # tokens per partial sum; sums of blocks do not depend on how many rows there are
LOWEST_LEADER = -2.9  # the best noisy score is never lower: noise is at least -2.82, the largest score is 0
FEW = 4096  # up to this many tokens, one pass is cheaper than narrowing them down first
GUMBEL_MAX = 22.9  # no noise value is larger, so tokens far below the leader need none


class RowLaw:
    """softmax(logits / T) of one row [V], kept as unnormalised float32 weights exp((logit - max) / T).

    NaN logits count as -inf and +inf as the largest finite value. A row without any finite logit is ``invalid``: its
    law is all on token 0. T = 0 puts all on the argmax. Drafting and verification both build laws here, so q in
    the acceptance test is bit for bit the law that the draft token was drawn from.
    """

    def __init__(self, logits: torch.Tensor, temperature: float, top: tuple[float, int] | None = None) -> None:
        """``top``: maximum and argmax of the row where they are known."""
        self._argmax: int | None
        maximum, self._argmax = top or (float(logits.amax()), None)
        if not is_finite(maximum):
            logits = torch.nan_to_num(logits.float(), nan=-torch.inf, posinf=3.0e38, neginf=-torch.inf)
            maximum, self._argmax = float(logits.amax()), None
        self.invalid = maximum == -torch.inf
        self.logits, self.maximum, self.temperature = logits, maximum, temperature
        self._weights: torch.Tensor | None = None
        self._masses: np.ndarray | None = None

    def argmax(self) -> int:
        """The most likely token, the lowest id on ties."""
        if self._argmax is None:
            self._argmax = row_tops(self.logits[None])[1][0]
        return 0 if self.invalid else self._argmax

    @property
    def weights(self) -> torch.Tensor:
        """[V] float32, the largest is 1."""
        if self._weights is None:
            if self.invalid or self.temperature == 0:
                self._weights = torch.zeros(len(self.logits), dtype=torch.float32, device=self.logits.device)
                self._weights[self.argmax()] = 1.0
            else:
                native = native_rows(self.logits)
                if native is None:
                    self._weights = self._scores().exp_()
                else:
                    self._weights, self._masses = native.weights(self.logits, self.maximum, self.temperature)
        return self._weights

    def _scores(self) -> torch.Tensor:
        """[V] float32 (logits - maximum) / T."""
        return torch.sub(self.logits.float(), self.maximum).div_(self.temperature)

    @property
    def masses(self) -> np.ndarray:
        """Sums of neighbouring weights, see ``block_masses``."""
        weights = self.weights
        if self._masses is None:
            self._masses = block_masses(weights)
        return self._masses

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.masses.sum())

    def prob(self, token: int) -> float:
        """Probability of ``token``; 0 outside the vocabulary."""
        return float(self.weights[token]) / self.total if 0 <= token < len(self.logits) else 0.0

    def probs(self) -> torch.Tensor:
        """[V] float32 probabilities."""
        return self.weights / self.total

    def draw(self, u: float) -> int:
        """Inverse CDF in the order of token ids."""
        if self._weights is None and not self.invalid and self.temperature > 0:
            native = native_rows(self.logits)
            if native is not None:
                return native.sample(self.logits, self.maximum, self.temperature, u)
        return draw_inverse_cdf(self.weights, u, self.masses)

    def draw_gumbel(self, key: tuple[int, int, int, int]) -> int:
        """argmax of log-weights plus Gumbel noise of the Philox ``key`` (seed, position, slot, role)."""
        if self.invalid or self.temperature == 0:
            return self.argmax()
        return draw_gumbel(self._scores(), key)


def is_finite(maximum: float) -> bool:
    """Whether a row with this maximum can be used as it is: neither NaN nor infinite."""
    return -3.4e38 < maximum < 3.4e38


def block_masses(weights: torch.Tensor) -> np.ndarray:
    """[ceil(V / 256)] float64 sums of neighbouring weights, on the host."""
    whole = len(weights) // BLOCK * BLOCK
    parts = [weights[:whole].view(-1, BLOCK).sum(-1)] if whole else []
    if whole < len(weights) or not whole:
        parts.append(weights[whole:].sum()[None])
    masses = parts[0] if len(parts) == 1 else torch.cat(parts)
    return _on_host(masses).astype(np.float64)


def _on_host(values: torch.Tensor) -> np.ndarray:
    # NumPy needs a fraction of the time of torch on a few hundred numbers
    return values.cpu().numpy()


def draw_inverse_cdf(weights: torch.Tensor, u: float, masses: np.ndarray | None = None) -> int:
    """The first token whose cumulative weight exceeds u of the total; -1 if all weights are 0.

    ``masses``: the ``block_masses`` of the weights where they are known.
    """
    masses = block_masses(weights) if masses is None else masses
    native = native_rows(weights)
    if native is not None:
        return native.draw(weights, masses, u)
    cumulative = masses.cumsum()
    goal = u * float(cumulative[-1])
    block = int(cumulative.searchsorted(goal, side="right"))
    if block < len(cumulative):
        held = _on_host(weights[block * BLOCK : (block + 1) * BLOCK])
        inside = held.cumsum(dtype=np.float64)
        if block:
            inside += cumulative[block - 1]
        token = int(inside.searchsorted(goal, side="right"))
        if token < len(held) and held[token] > 0:
            return block * BLOCK + token
        weights = weights[: (block + 1) * BLOCK]
    # rounding left the goal just past a block's own sum: the last token with mass is the right one
    alive = weights.nonzero()
    return int(alive[-1]) if len(alive) else -1


def draw_gumbel(scores: torch.Tensor, key: tuple[int, int, int, int]) -> int:
    """argmax over tokens of ``scores`` [V] (log weights, the largest is 0) plus noise; -1 if all are -inf.

    Noise is bounded, so only tokens within reach of the best one so far get any: the result is the full argmax.
    """
    tokens = (scores > LOWEST_LEADER - GUMBEL_MAX).nonzero()[:, 0]
    if len(tokens) > FEW:
        leader = _best_of(scores, (scores > -4.0).nonzero()[:, 0], key)
        if leader is not None:
            tokens = (scores > leader[0] - GUMBEL_MAX).nonzero()[:, 0]
    best = _best_of(scores, tokens, key)
    return -1 if best is None else best[1]


def _best_of(scores: torch.Tensor, tokens: torch.Tensor, key: tuple[int, int, int, int]) -> tuple[float, int] | None:
    """Best noisy score and its token among ``tokens`` (ascending); lowest id on ties."""
    if not len(tokens):
        return None
    groups, where = torch.unique_consecutive(tokens >> 2, return_inverse=True)
    if scores.device.type == "cpu":
        words = torch.from_numpy(host.philox_groups(key[0], groups.numpy(), *key[1:]))
    else:
        columns = [torch.full_like(groups, x) for x in key]
        words = torch.stack(philox.philox(columns[0], groups, *columns[1:]), dim=-1)
    noisy = scores[tokens] + philox.gumbel_from_words(words[where, tokens & 3])
    winner = int(noisy.argmax())
    return float(noisy[winner]), int(tokens[winner])
