"""Shaping the target's logits of every verified row by what its request asks, and reading log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec.engine.sampling.sampling_params import SamplingParams

NEG_INF = float("-inf")
_TOP_P_CANDIDATES = 256  # first guess of how many tokens hold the mass top_p; grows when they do not


class RequestSampling:
    """One request's sampling parameters, made ready for its target, and the tokens it has emitted so far."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        vocab_size: int,
        eos_token_ids: Sequence[int] = (),
        bad_words_token_ids: Sequence[Sequence[int]] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        params.check_vocabulary(vocab_size)
        self.params = params
        self.vocab_size = vocab_size
        self.device = torch.device(device)
        self.eos_token_ids = tuple(dict.fromkeys(eos_token_ids))
        ending = (*(() if params.ignore_eos else self.eos_token_ids), *(params.stop_token_ids or ()))
        self._ending = self._ids(dict.fromkeys(ending))
        self._allowed = None if params.allowed_token_ids is None else self._ids(params.allowed_token_ids)
        bias = params.logit_bias or {}
        self._bias = (self._ids(bias), torch.tensor(list(bias.values()), device=self.device)) if bias else None
        words = [tuple(w) for w in (*(params.bad_words_token_ids or ()), *bad_words_token_ids)]
        self._bad_tokens = self._ids(dict.fromkeys(w[0] for w in words if len(w) == 1))
        self._bad_words = [w for w in dict.fromkeys(words) if len(w) > 1]
        self.output: list[int] = []
        # token -> times emitted; prompt tokens stand with 0, which is what the repetition penalty asks
        self._counts: dict[int, int] = dict.fromkeys(prompt_token_ids, 0) if params.has_penalties else {}
        self.plain = params.only_temperature and not words and params.constraint is None

    def _ids(self, ids: Sequence[int] | dict[int, object]) -> torch.Tensor:
        return torch.tensor(list(ids), dtype=torch.int64, device=self.device)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Tokens that the request emitted: accepted drafts and the bonus or correction token, never rejected drafts."""
        self.output.extend(token_ids)
        if self.params.has_penalties:
            for token in token_ids:
                self._counts[token] = self._counts.get(token, 0) + 1

    def process(self, rows: torch.Tensor, drafts: Sequence[int]) -> None:
        """Shape ``rows`` [W, V] float32 in place; row i follows the output so far and ``drafts[:i]``."""
        params = self.params
        rows.nan_to_num_(nan=NEG_INF, posinf=torch.finfo(rows.dtype).max, neginf=NEG_INF)
        self._constrain(rows, drafts)
        if self._allowed is not None:
            kept = rows[:, self._allowed]
            rows.fill_(NEG_INF)
            rows[:, self._allowed] = kept
        if self._bias is not None:
            rows[:, self._bias[0]] += self._bias[1].to(rows.dtype)
        too_early = min(rows.shape[0], params.min_tokens - len(self.output))
        if too_early > 0:
            rows[:too_early, self._ending] = NEG_INF
        if params.has_penalties:
            self._penalise(rows, drafts)
        self._forbid_bad_words(rows, drafts)
        self._allow_ending_where_nothing_is_left(rows)
        if params.temperature > 0:
            truncate_(rows, params.temperature, params.min_p, params.top_k, params.top_p)

    def _constrain(self, rows: torch.Tensor, drafts: Sequence[int]) -> None:
        if self.params.constraint is None:
            return
        for i in range(rows.shape[0]):
            allowed = self.params.constraint.allowed([*self.output, *drafts[:i]])
            if allowed is not None:
                mask = allowed.to(rows.device)
                rows[i, : mask.shape[0]].masked_fill_(~mask, NEG_INF)
                rows[i, mask.shape[0] :] = NEG_INF
                # a draft outside the constraint has probability 0, so no row after it is ever used
                if i < len(drafts) and not (0 <= drafts[i] < mask.shape[0] and bool(mask[drafts[i]])):
                    return

    def _penalise(self, rows: torch.Tensor, drafts: Sequence[int]) -> None:
        params, width = self.params, rows.shape[0]
        column = {token: i for i, token in enumerate(dict.fromkeys((*self._counts, *(d for d in drafts if d >= 0))))}
        if not column:
            return
        counts = torch.tensor([self._counts.get(token, 0) for token in column]).repeat(width, 1)
        seen = torch.tensor([token in self._counts for token in column]).repeat(width, 1)
        for i, token in enumerate(drafts[: width - 1]):
            if token < 0:
                break
            counts[i + 1 :, column[token]] += 1
            seen[i + 1 :, column[token]] = True
        ids, counts, seen = self._ids(column), counts.to(rows.device), seen.to(rows.device)
        values = rows[:, ids]
        penalty = params.repetition_penalty
        values = torch.where(seen, torch.where(values > 0, values / penalty, values * penalty), values)
        values -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
        rows[:, ids] = values

    def _forbid_bad_words(self, rows: torch.Tensor, drafts: Sequence[int]) -> None:
        if len(self._bad_tokens):
            rows[:, self._bad_tokens] = NEG_INF
        if not self._bad_words:
            return
        longest = max(len(w) for w in self._bad_words) - 1
        context = (*self.output[-longest:], *drafts)
        start = len(context) - len(drafts)
        for i in range(rows.shape[0]):
            prefix = context[: start + i]
            for *head, last in self._bad_words:
                if prefix[-len(head) :] == tuple(head):
                    rows[i, last] = NEG_INF

    def _allow_ending_where_nothing_is_left(self, rows: torch.Tensor) -> None:
        """A row whose every token is forbidden may only end the request, or say token 0 when nothing ends it."""
        dead = rows.amax(dim=-1) == NEG_INF
        if bool(dead.any()):
            ending = self.eos_token_ids or tuple(self._ending.tolist()) or (0,)
            rows[dead.nonzero(), self._ids(ending)] = 0.0


def truncate_(rows: torch.Tensor, temperature: float, min_p: float = 0.0, top_k: int = 0, top_p: float = 1.0) -> None:
    """Drop unlikely tokens from ``rows`` [W, V] in place: min-p, then top-k, then top-p of ``rows / temperature``.

    Ties at a threshold are kept, so the support does not depend on a sort's order. The logits stay undivided.
    """
    if min_p > 0.0:
        rows.masked_fill_(rows < rows.amax(-1, keepdim=True) + temperature * math.log(min_p), NEG_INF)
    if 0 < top_k < rows.shape[-1]:
        rows.masked_fill_(rows < rows.topk(top_k, dim=-1).values[:, -1:], NEG_INF)
    if top_p < 1.0:
        rows.masked_fill_(rows < _top_p_threshold(rows, temperature, top_p), NEG_INF)


def _top_p_threshold(rows: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The smallest logit [W, 1] to keep: a token goes when the tokens above it already hold ``top_p``."""
    vocab, count = rows.shape[-1], _TOP_P_CANDIDATES
    log_mass = torch.logsumexp(rows / temperature, dim=-1, keepdim=True)
    while True:
        count = min(count, vocab)
        values = rows.topk(count, dim=-1).values
        probabilities = (values / temperature - log_mass).exp()
        kept = (probabilities.cumsum(-1) - probabilities < top_p).sum(-1, keepdim=True)
        if count == vocab or bool((kept < count).all()):
            return values.gather(-1, kept.clamp(min=1) - 1)
        count *= 8


def process_rows(
    logits: torch.Tensor,
    requests: Sequence[RequestSampling],
    row_offsets: Sequence[int],
    drafts: Sequence[Sequence[int]],
) -> torch.Tensor:
    """The target's logits [N, V] after everything the requests ask, **before** the division by temperature.

    Request r owns rows ``row_offsets[r]:row_offsets[r + 1]``; its row i follows ``drafts[r][:i]`` (-1 = no draft there
    nor after). Order: constraint, allowed ids, bias, min-tokens, penalties, bad words, min-p, top-k, top-p; the last
    three judge logits / temperature. Returns ``logits`` itself, in its dtype, when no request asks for anything, else
    a float32 copy in which forbidden tokens are -inf.
    """
    if all(request.plain for request in requests):
        return logits
    out = logits.to(torch.float32, copy=True)
    for r, request in enumerate(requests):
        first, last = row_offsets[r], row_offsets[r + 1]
        if not request.plain and last > first:
            request.process(out[first:last], drafts[r])
    return out


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of N tokens: the sampled one first, then the likeliest."""

    token_ids: torch.Tensor  # [N, 1 + top] int64
    values: torch.Tensor  # [N, 1 + top] float32, nats
    ranks: torch.Tensor  # [N] int64: tokens at least as likely as the sampled one, so 1 = the likeliest


def gather_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, top: int) -> Logprobs:
    """Log-softmax of unprocessed ``logits`` [N, V] at ``token_ids`` [N] and at the ``top`` likeliest (-1 = all V)."""
    values = torch.log_softmax(logits.float(), dim=-1)
    sampled = values.gather(-1, token_ids[:, None])
    ranks = (values >= sampled).sum(-1)
    if top == 0:
        return Logprobs(token_ids[:, None], sampled, ranks)
    best = values.topk(values.shape[-1] if top < 0 else min(top, values.shape[-1]), dim=-1)
    return Logprobs(torch.cat((token_ids[:, None], best.indices), -1), torch.cat((sampled, best.values), -1), ranks)
