"""Requests, and the per-slot tensors that speculators may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specdec.engine.metrics import RequestMetrics
from specdec.engine.outputs import TokenLogprob
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.verify.draft_laws import TopKDraftLogits

SEED_MASK = 2**63 - 1


@dataclass(eq=False)  # two requests are never the same one
class Request:
    """One sequence on its way through the engine. ``token_ids[:num_computed]`` are in the KV cache."""

    request_id: str
    index: int  # order of arrival
    prompt_token_ids: list[int]
    params: SamplingParams
    seed: int
    max_total_tokens: int  # prompt and output may not grow beyond this
    prompt: str | None = None
    parent: str | None = None  # request id shared by the n completions of one prompt
    child: int = 0
    slot: int = -1  # -1 = waiting or finished
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)  # to verify in the next step
    # [len(drafts), V] what they were drawn from; None = one-hot
    draft_logits: torch.Tensor | TopKDraftLogits | None = None
    confidences: list[float] | None = None  # [len(drafts)]
    drafts_free: bool = False  # they come from a chain's member that costs nothing
    drafted_in: float = 0.0  # seconds spent proposing them, shared evenly in the batch
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    finish_reason: str | None = None  # stop | length | abort | error
    stop_reason: int | str | None = None  # the stop id or string
    error: str | None = None
    logprobs: list[TokenLogprob] | None = None
    state: Any = None  # what sampling and detokenization keep for this request

    def __post_init__(self) -> None:
        if not self.token_ids:
            self.token_ids = list(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def num_pending(self) -> int:
        """Tokens that are known but not yet in the KV cache."""
        return len(self.token_ids) - self.num_computed

    @property
    def room(self) -> int:
        """Tokens that may still be emitted."""
        return self.max_total_tokens - len(self.token_ids)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def num_drafts_allowed(self, k: int) -> int:
        """Drafts that make sense next: at most k, and none that could be accepted past the end."""
        if self.params.num_speculative_tokens is not None:
            k = min(k, self.params.num_speculative_tokens)
        return max(0, min(k, self.room - 1))


def derive_seed(engine_seed: int, index: int) -> int:
    """The seed of request number ``index`` when the user gave none (splitmix64, so neighbours are unrelated)."""
    z = (engine_seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) & SEED_MASK


class RequestStates:
    """Per-slot state on the device, handed to speculators whose constructor names ``req_states``.

    Rows are slots. A slot keeps its number from admission to the end of its request.
    """

    def __init__(self, max_num_seqs: int, max_model_len: int, device: torch.device) -> None:
        self.max_num_seqs, self.max_model_len, self.device = max_num_seqs, max_model_len, device
        # all known tokens of each request, prompt first; zero beyond num_tokens
        self.token_ids = torch.zeros(max_num_seqs, max_model_len + 1, dtype=torch.int64, device=device)
        self.num_tokens = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)
        self.prompt_len = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)
        self.temperature = torch.zeros(max_num_seqs, dtype=torch.float32, device=device)
        self.seeds = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)
        # on the CPU the same memory as arrays: writing a few numbers through torch costs more than the step's schedule
        self._arrays = (self.token_ids.numpy(), self.num_tokens.numpy()) if device.type == "cpu" else None
        self.requests: list[Request | None] = [None] * max_num_seqs
        self._free = list(range(max_num_seqs - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def admit(self, request: Request) -> int:
        """Give the request the lowest free slot and write its prompt."""
        slot = self._free.pop()
        request.slot = slot
        self.requests[slot] = request
        count = len(request.token_ids)
        self.token_ids[slot].zero_()
        self.token_ids[slot, :count] = torch.tensor(request.token_ids, device=self.device)
        self.num_tokens[slot] = count
        self.prompt_len[slot] = len(request.prompt_token_ids)
        self.temperature[slot] = request.params.temperature
        self.seeds[slot] = request.seed
        return slot

    def append(self, slot: int, old_length: int, tokens: Sequence[int]) -> None:
        """Add emitted tokens to a slot's history."""
        end = old_length + len(tokens)
        if self._arrays is not None:
            history, lengths = self._arrays
            history[slot, old_length:end] = tokens
            lengths[slot] = end
            return
        self.token_ids[slot, old_length:end] = torch.tensor(tokens, device=self.device)
        self.num_tokens[slot] = end

    def release(self, slot: int) -> None:
        self.requests[slot] = None
        self._free.append(slot)
        self._free.sort(reverse=True)
