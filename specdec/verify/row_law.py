"""The law of one row of logits at a temperature, and draws from it, on whatever device the row lives."""

from __future__ import annotations

import torch
from specdec_kernels.philox import host
from specdec_kernels.philox import reference as philox

BLOCK = 256  # tokens per partial sum; sums of blocks do not depend on how many rows there are
SMALL = 4096  # below this many tokens one pass over all is cheaper than two over some
GUMBEL_MAX = 22.9  # no noise value is larger, so tokens far below the leader need none


class RowLaw:
    """softmax(logits / T) of one row [V], kept as unnormalised float32 weights exp((logit - max) / T).

    NaN logits count as -inf and +inf as the largest finite value. A row without any finite logit is ``invalid``: its
    law is all on token 0. T = 0 puts all on the argmax. Drafting and verification both build laws here, so q in
    the acceptance test is bit for bit the law that the draft token was drawn from.
    """

    def __init__(self, logits: torch.Tensor, temperature: float, maximum: float | None = None) -> None:
        top = float(logits.amax()) if maximum is None else maximum
        if not (-3.4e38 < top < 3.4e38):  # also true of NaN
            logits = torch.nan_to_num(logits.float(), nan=-torch.inf, posinf=3.0e38, neginf=-torch.inf)
            top = float(logits.amax())
        self.invalid = top == -torch.inf
        self.logits, self.maximum, self.temperature = logits, top, temperature
        self._weights: torch.Tensor | None = None
        self._total: float | None = None

    def argmax(self) -> int:
        """The most likely token, the lowest id on ties."""
        return 0 if self.invalid else first_index_of(self.logits, self.maximum)

    @property
    def weights(self) -> torch.Tensor:
        """[V] float32, the largest is 1."""
        if self._weights is None:
            if self.invalid or self.temperature == 0:
                self._weights = torch.zeros(len(self.logits), dtype=torch.float32, device=self.logits.device)
                self._weights[self.argmax()] = 1.0
            else:
                self._weights = torch.sub(self.logits.float(), self.maximum).div_(self.temperature).exp_()
        return self._weights

    @property
    def total(self) -> float:
        """Sum of the weights."""
        if self._total is None:
            self._total = float(block_masses(self.weights).sum())
        return self._total

    def prob(self, token: int) -> float:
        """Probability of ``token``; 0 outside the vocabulary."""
        return float(self.weights[token]) / self.total if 0 <= token < len(self.logits) else 0.0

    def probs(self) -> torch.Tensor:
        """[V] float32 probabilities."""
        return self.weights / self.total

    def draw(self, u: float) -> int:
        """Inverse CDF in the order of token ids."""
        return draw_inverse_cdf(self.weights, u)

    def draw_gumbel(self, key: tuple[int, int, int, int]) -> int:
        """argmax of log-weights plus Gumbel noise of the Philox ``key`` (seed, position, slot, role)."""
        if self.invalid or self.temperature == 0:
            return self.argmax()
        return draw_gumbel(torch.sub(self.logits.float(), self.maximum).div_(self.temperature), key)


def first_index_of(row: torch.Tensor, maximum: float) -> int:
    """Lowest index of the known maximum of a row [V]; much faster on a CPU than argmax, above all for 16-bit rows."""
    whole = len(row) // BLOCK * BLOCK
    start = whole
    if whole:
        blocks = (row[:whole].view(-1, BLOCK).amax(-1) == maximum).to(torch.uint8)
        first = int(blocks.argmax())
        if blocks[first]:
            start = first * BLOCK
    return start + int((row[start : start + BLOCK] == maximum).to(torch.uint8).argmax())


def block_masses(weights: torch.Tensor) -> torch.Tensor:
    """[ceil(V / 256)] float64 sums of neighbouring weights."""
    whole = len(weights) // BLOCK * BLOCK
    masses = weights[:whole].view(-1, BLOCK).sum(-1).double()
    return masses if whole == len(weights) else torch.cat([masses, weights[whole:].sum().double()[None]])


def draw_inverse_cdf(weights: torch.Tensor, u: float) -> int:
    """The first token whose cumulative weight exceeds u of the total; -1 if all weights are 0."""
    cumulative = block_masses(weights).cumsum(0)
    goal = u * float(cumulative[-1])
    block = int(torch.searchsorted(cumulative, goal, right=True))
    if block < len(cumulative):
        inside = weights[block * BLOCK : (block + 1) * BLOCK].double().cumsum(0)
        if block:
            inside += cumulative[block - 1]
        token = block * BLOCK + int(torch.searchsorted(inside, goal, right=True))
        if token < min(len(weights), (block + 1) * BLOCK) and weights[token] > 0:
            return token
        weights = weights[: (block + 1) * BLOCK]
    # rounding left the goal just past a block's own sum: the last token with mass is the right one
    alive = weights.nonzero()
    return int(alive[-1]) if len(alive) else -1


def draw_gumbel(scores: torch.Tensor, key: tuple[int, int, int, int]) -> int:
    """argmax over tokens of ``scores`` [V] (log weights, the largest is 0) plus noise; -1 if all are -inf.

    Noise is bounded, so only tokens within reach of the best one so far get any: the result is the full argmax.
    """
    floor = -torch.inf
    if len(scores) > SMALL:
        leaders = _best_of(scores, -4.0, key)
        if leaders is not None:
            floor = leaders[0] - GUMBEL_MAX
    best = _best_of(scores, floor, key)
    return -1 if best is None else best[1]


def _best_of(scores: torch.Tensor, floor: float, key: tuple[int, int, int, int]) -> tuple[float, int] | None:
    """Best noisy score and its token among scores above ``floor``."""
    padded = torch.nn.functional.pad(scores, (0, -len(scores) % 4), value=-torch.inf).view(-1, 4)
    groups = (padded.amax(1) > floor).nonzero()[:, 0]
    if not len(groups):
        return None
    if scores.device.type == "cpu":
        noise = philox.gumbel_from_words(torch.from_numpy(host.philox_groups(key[0], groups.numpy(), *key[1:])))
    else:
        seed, position, slot, _ = (torch.tensor([x], device=scores.device) for x in key)
        noise = philox.gumbel_groups(seed, position, slot, int(key[3]), groups)[0]
    noisy = (padded[groups] + noise).flatten()
    winner = int(noisy.argmax())
    return float(noisy[winner]), int(groups[winner // 4]) * 4 + winner % 4
