"""A Round over tensors: rows are read only when a rule asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.verify.draft_laws import DraftLaws
from specdec.verify.noise import Role, RoundNoise
from specdec.verify.row_law import RowLaw, draw_gumbel, draw_inverse_cdf, is_finite


class EagerRound:
    """One request's round on rows ``first`` to ``first + n`` of target logits; at temperature 0 a law is all on the argmax."""

    def __init__(
        self,
        logits: torch.Tensor,
        tops: tuple[Sequence[float], Sequence[int]],
        first: int,
        drafts: Sequence[int],
        temperature: float,
        noise: RoundNoise,
        draft_laws: DraftLaws | None,
        request: int,
        gumbel: bool,
    ) -> None:
        self.logits, self.tops, self.first, self.drafts, self.temperature = logits, tops, first, drafts, temperature
        self.noise, self.draft_laws, self.request, self.gumbel = noise, draft_laws, request, gumbel
        self.one_hot = draft_laws is None or temperature == 0
        self._target: dict[int, RowLaw] = {}
        self._draft: dict[int, RowLaw] = {}

    def _row(self, row: int) -> RowLaw:
        if row not in self._target:
            maximum, token = self._top(row)
            self._target[row] = RowLaw(self.logits[self.first + row], self.temperature, (maximum, token))
        return self._target[row]

    def _top(self, row: int) -> tuple[float, int]:
        maxima, tokens = self.tops
        return maxima[self.first + row], tokens[self.first + row]

    def _draft_row(self, row: int) -> RowLaw:
        assert self.draft_laws is not None
        if row not in self._draft:
            self._draft[row] = self.draft_laws.row(self.request, row, self.temperature)
        return self._draft[row]

    def invalid(self, rows: int) -> bool:
        """Whether any of the first ``rows`` target rows had no finite logit."""
        return any(law.invalid for row, law in self._target.items() if row < rows)

    def argmax(self, row: int) -> int:
        maximum, token = self._top(row)
        return token if is_finite(maximum) else self._row(row).argmax()

    def target_prob(self, row: int, token: int) -> float:
        return self._row(row).prob(token)

    def target_law(self, row: int) -> torch.Tensor:
        return self._row(row).probs()

    def draft_prob(self, row: int, token: int) -> float:
        if self.one_hot:
            return 1.0
        assert self.draft_laws is not None
        known = self.draft_laws.prob(self.request, row)
        return self._draft_row(row).prob(token) if known is None else known

    def draft_law(self, row: int) -> torch.Tensor:
        q, size = self._draft_row(row).probs(), self.logits.shape[-1]
        if len(q) >= size:
            return q[:size]
        return torch.nn.functional.pad(q, (0, size - len(q)))

    def entropy(self, row: int, top_k: int) -> float:
        top = self.target_law(row).topk(min(top_k, self.logits.shape[-1])).values
        top = top / top.sum()
        return float(torch.special.entr(top).sum())

    def accept(self, row: int, probability: float) -> bool:
        return self.noise.uniform(row, Role.ACCEPT) < float(probability)

    def draw_residual(self, row: int, weights: torch.Tensor) -> int:
        if self.temperature == 0:
            return self.argmax(row)
        if self.gumbel:
            scores = weights.log()
            token = draw_gumbel(scores - scores.amax(), self.noise.key(row, Role.RESIDUAL))
        else:
            token = draw_inverse_cdf(weights, self.noise.uniform(row, Role.RESIDUAL))
        # p and q agree to rounding, so the rejection itself was a rounding event: any draw from p is right
        return self._row(row).draw(self.noise.uniform(row, Role.TARGET)) if token < 0 else token

    def draw_target(self, row: int) -> int:
        law = self._row(row)
        if law.invalid or self.temperature == 0:
            return law.argmax()
        if self.gumbel:
            return law.draw_gumbel(self.noise.key(row, Role.TARGET))
        return law.draw(self.noise.uniform(row, Role.TARGET))
