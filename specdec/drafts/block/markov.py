"""DSpark's sequential head: a low-rank bias on each row's logits, from the token before it. Source: arXiv 2607.05147."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from specdec.drafts.errors import DraftError


class MarkovHead(nn.Module):
    """Bias W2 W1[previous token]. Subclasses shape the vector between the two matrices."""

    def __init__(self, hidden_size: int, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab_size, bias=False)

    def start(self, rows: int, like: torch.Tensor) -> torch.Tensor | None:
        """State [R, ...] before the first draft; None = none is kept."""
        return None

    def latent(
        self, embedded: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What W2 reads [R, rank] of W1[previous] [R, rank] and the row's hidden [R, H]; and the next state."""
        return embedded, None


class GatedMarkovHead(MarkovHead):
    """Bias W2 (sigmoid(gate [hidden; e]) * e)."""

    def __init__(self, hidden_size: int, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__(hidden_size, vocab_size, draft_vocab_size, rank)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    def latent(
        self, embedded: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return torch.sigmoid(self.gate_proj(torch.cat((hidden, embedded), -1))) * embedded, None


class RecurrentMarkovHead(MarkovHead):
    """Keeps a state s: s' = sigmoid(gate) * s + (1 - sigmoid(gate)) * tanh(candidate), bias W2 tanh(out)."""

    def __init__(self, hidden_size: int, vocab_size: int, draft_vocab_size: int, rank: int) -> None:
        super().__init__(hidden_size, vocab_size, draft_vocab_size, rank)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def start(self, rows: int, like: torch.Tensor) -> torch.Tensor | None:
        return like.new_zeros(rows, self.markov_w1.embedding_dim)

    def latent(
        self, embedded: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        assert state is not None
        gate, candidate, out = self.joint_proj(torch.cat((state, embedded, hidden), -1)).chunk(3, -1)
        gate = torch.sigmoid(gate)
        return torch.tanh(out), gate * state + (1 - gate) * torch.tanh(candidate)


HEADS: Mapping[str, type[MarkovHead]] = {"vanilla": MarkovHead, "gated": GatedMarkovHead, "rnn": RecurrentMarkovHead}


def markov_head(draft: Mapping[str, Any], vocab_size: int, draft_vocab_size: int) -> MarkovHead | None:
    """The head that the facts describe; None for rank 0. Raises ``DraftError`` for a kind that is not known."""
    if not draft.get("markov_rank"):
        return None
    kind = draft["markov_head_type"]
    if kind not in HEADS:
        raise DraftError(f"the draft's markov_head_type is {kind!r}; known are {', '.join(HEADS)}")
    return HEADS[kind](draft["hidden_size"], vocab_size, draft_vocab_size, draft["markov_rank"])


class ConfidenceHead(nn.Module):
    """Estimates the chance that a row's draft is accepted, in float32; a temperature per row where one was calibrated."""

    def __init__(self, width: int, calibrated: int = 0) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)
        if calibrated:
            self.sts_temperatures = nn.Parameter(torch.empty(calibrated))

    def forward(self, features: torch.Tensor, step: int) -> torch.Tensor:
        """Probability [R] of row ``step`` with features [R, width]."""
        score = torch.nn.functional.linear(features.float(), self.proj.weight.float(), self.proj.bias.float())[:, 0]
        temperatures = getattr(self, "sts_temperatures", None)
        if temperatures is not None:
            score = score / temperatures[min(step, len(temperatures) - 1)].float()
        return torch.sigmoid(score)


class MarkovWalk:
    """Rows whose logits shift with the draft before them.

    ``best``: the bias is added to this many best tokens of each row only, and others are never drafted.
    """

    def __init__(
        self,
        base: torch.Tensor,  # [R, S, V_d]
        hidden: torch.Tensor,  # [R, S, H]
        head: MarkovHead | None,
        to_target: torch.Tensor | None,
        confidence: Callable[[torch.Tensor, int], torch.Tensor] | None = None,
        reads_token: bool = False,  # the confidence sees W1[previous] too
        best: int | None = None,
        scale: float = 1.0,  # of the bias
    ) -> None:
        self.base, self.hidden, self.head, self.to_target = base, hidden, head, to_target
        self.confident, self.reads_token, self.scale = confidence, reads_token, scale
        self.state = None if head is None else head.start(len(hidden), hidden)
        self.ids = to_target
        self.kept: torch.Tensor | None = None  # [R, S, best] ids of the draft's head
        if best is not None and best < base.shape[-1]:
            self.base, self.kept = base.topk(best, -1)

    def row(self, step: int, tokens: torch.Tensor, choices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        base = self.base[:, step]
        kept = None if self.kept is None else self.kept[:, step]
        ids = self.ids if kept is None else kept if self.to_target is None else self.to_target[kept]
        if self.head is None:
            return base, ids
        latent, self.state = self.head.latent(self.head.markov_w1(tokens), self.hidden[:, step], self.state)
        w2 = self.head.markov_w2
        bias = w2(latent) if kept is None else (w2.weight[kept] @ latent[:, :, None])[..., 0]
        return base + (bias if self.scale == 1.0 else bias * self.scale), ids

    def confidence(self, step: int, tokens: torch.Tensor) -> torch.Tensor | None:
        if self.confident is None:
            return None
        features = self.hidden[:, step]
        if self.reads_token:
            assert self.head is not None
            features = torch.cat((features, self.head.markov_w1(tokens)), -1)
        return self.confident(features, step)
