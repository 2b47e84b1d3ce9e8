"""Row statistics in plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowStats:
    """Statistics of N rows of z = (logits - max) / T; a row without any finite logit has its law on token 0."""

    maximum: torch.Tensor  # [N] float32, of the logits themselves; -inf = no finite logit
    lse: torch.Tensor  # [N] float32, log of the sum of exp(z), at least 0; 0 for a row without any finite logit
    argmax: torch.Tensor  # [N] int64, lowest id on ties, 0 for a row without any finite logit
    token_logprob: torch.Tensor  # [N] float32, log probability of the given token; -inf outside the vocabulary
    block_max: torch.Tensor  # [N, B] float32, maximum of each block of the row's logits
    block_sum: torch.Tensor  # [N, B] float32, sum over the block of exp((logit - block max) / T)
    block_size: int


def clean(logits: torch.Tensor) -> torch.Tensor:
    """float32 logits with NaN as -inf and +inf as a large finite value."""
    logits = logits.float()
    return torch.where(logits.isnan(), -torch.inf, logits).clamp(max=3.0e38)


def scaled(logits: torch.Tensor, maximum: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """(logits - max) / T for rows [N, V]; T = 0 counts as 1."""
    shift = torch.where(maximum == -torch.inf, 0.0, maximum)
    return (logits - shift[:, None]) / torch.where(temperature > 0, temperature.float(), 1.0)[:, None]


def row_stats(
    logits: torch.Tensor, temperature: torch.Tensor, tokens: torch.Tensor | None, block_size: int
) -> RowStats:
    """Statistics of rows [N, V] at temperatures [N], with the log probability of one token [N] per row."""
    x = clean(logits)
    num_rows, vocab_size = x.shape
    maximum = x.amax(-1)
    z = scaled(x, maximum, temperature)
    valid = maximum > -torch.inf
    lse = torch.where(valid, torch.logsumexp(z, -1), 0.0)
    tokens = torch.full((num_rows,), -1, device=x.device) if tokens is None else tokens.long()
    known = (tokens >= 0) & (tokens < vocab_size)
    score = z.gather(1, torch.where(known, tokens, 0)[:, None])[:, 0]
    logprob = torch.where(known & valid, score - lse, -torch.inf)
    logprob = torch.where(~valid & (tokens == 0), 0.0, logprob)
    padding = -vocab_size % block_size
    blocks = torch.nn.functional.pad(x, (0, padding), value=-torch.inf).view(num_rows, -1, block_size)
    block_max = blocks.amax(-1)
    shifted = blocks - torch.where(block_max == -torch.inf, 0.0, block_max)[..., None]
    t = torch.where(temperature > 0, temperature.float(), 1.0)
    block_sum = (shifted / t[:, None, None]).exp().sum(-1)
    return RowStats(maximum, lse, x.argmax(-1), logprob, block_max, block_sum, block_size)
