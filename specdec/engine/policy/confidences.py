"""How likely each draft is accepted: what its speculator says, else an estimate that never looks at the drawn token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec.engine.policy.accounts import Account
from specdec.verify.draft_laws import candidate_logits
from specdec.verify.estimator import AcceptanceEstimator, ConfidenceEstimator

PRIOR = 0.6  # acceptance of drafts that come without confidences, while nothing is known of them
FEATURE_BOUND = 40.0


class Confidences:
    """Confidences of a request's drafts; what is estimated is learned over all requests but reproducible ones."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.by_position = AcceptanceEstimator(k, prior=PRIOR)
        self.by_certainty = ConfidenceEstimator(k)
        self._unfitted = ConfidenceEstimator(k)

    def expected(self, account: Account) -> list[float]:
        """Acceptance by position, for drafts that are not drawn yet or come without a confidence."""
        if account.costs is not None or account.drawn.is_forgotten:
            return [PRIOR] * self.k
        return self.by_position.conditional()

    def of(self, request: Any, account: Account) -> Sequence[float]:
        """The draft's own confidences, else an estimate from its logits, else from the acceptance of each position."""
        given: Sequence[float] | None = request.confidences
        count = len(request.drafts)
        account.features = ()
        unknown = given is None or any(value != value for value in given[:count])  # nan: not known
        if given is not None and not unknown:
            return given[:count]
        if request.draft_logits is not None:
            account.features = certainty(candidate_logits(request.draft_logits), request.params.temperature)
            return (self.by_certainty if account.costs is None else self._unfitted).predict(account.features)
        expected = self.expected(account)[:count]
        if given is None:
            return expected
        return [other if value != value else value for value, other in zip(given, expected, strict=False)]

    def observe(self, account: Account, drafted: int, accepted: int) -> None:
        """A round verified ``drafted`` tokens of the request and accepted ``accepted``."""
        if account.costs is not None or not drafted:
            return
        if not account.is_free:  # what is drawn for nothing says nothing about what is dear
            self.by_position.observe(accepted, drafted)
        if account.features:
            self.by_certainty.observe(account.features, account.confidences, accepted, drafted)


def certainty(logits: torch.Tensor, temperature: float) -> list[float]:
    """Log-odds of the likeliest token of each draft row [K, V]; it does not look at the token that was drawn."""
    scaled = logits.float() / (temperature or 1.0)
    top = scaled.amax(-1, keepdim=True)
    others = (scaled - top).exp().sum(-1) - 1.0
    return (-others.clamp(min=0).log()).clamp(-FEATURE_BOUND, FEATURE_BOUND).tolist()
