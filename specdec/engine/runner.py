"""One step: a verify forward over the pending tokens and drafts of some requests, acceptance, then new drafts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from specdec.drafts.run.runner import DraftRunner
from specdec.engine.exchange import draft_laws, hand_out, settled_step
from specdec.engine.outputs import TokenLogprob
from specdec.engine.policy.lengths import Widths
from specdec.engine.requests import Request, RequestStates
from specdec.engine.sampling.rows import gather_logprobs, process_rows
from specdec.model.accelerate import native_stack
from specdec.model.batch import Batch, build_batch
from specdec.model.capture import HiddenStateCapture
from specdec.model.graphs import DecodeGraphs
from specdec.model.kv_cache import SlotCache
from specdec.model.target import Target
from specdec.speculators.base import BaseSpeculator, Needs, Step
from specdec.speculators.k_schedule import KSchedule
from specdec.verify.verifier import Verifier


@dataclass
class StepResult:
    """What one forward brought, per request of ``batch``; requests are not changed yet."""

    batch: Batch
    emitted: list[list[int]]  # accepted drafts and the bonus or correction token; empty while a prompt is unfinished
    invalid: list[bool]  # the target gave no finite logit where one was needed


@dataclass
class _Sampling:
    """What deciding needs besides logits; gathered before the forward, which leaves nothing else in the caches."""

    where: list[int]  # indices in the batch of the requests to sample for
    requests: list[Request]
    offsets: list[int]  # request r owns logit rows offsets[r]:offsets[r + 1]
    drafts: list[list[int]]
    inputs: dict[str, Any]  # of the verifier


@dataclass
class StepTimes:
    """Seconds of the latest step."""

    prepare: float = 0.0
    forward: float = 0.0
    verify: float = 0.0
    draft: float = 0.0


class Runner:
    """Runs the target over cache slots; knows nothing about queues, text or how requests end.

    ``verify`` and ``propose`` run under ``torch.inference_mode``, which the engine's step enters.
    """

    def __init__(
        self,
        target: Target,
        states: RequestStates,
        verifier: Verifier,
        speculator: BaseSpeculator | None = None,
        controller: Any | None = None,
        use_graphs: bool = True,
    ) -> None:
        self.target, self.states, self.verifier = target, states, verifier
        self.speculator, self.controller = speculator, controller
        self.cache = SlotCache(target.layout.num_layers, states.max_num_seqs, states.max_model_len)
        self.drafts = DraftRunner(self.cache.slots, states.max_model_len, target.device)
        self.times = StepTimes()
        self.max_drafts = 0
        self.schedule = KSchedule(0)
        self.drafts_tokens = False
        self.capture: HiddenStateCapture | None = None
        self.needs = Needs()
        self.costs_nothing: Sequence[bool] = getattr(speculator, "costs_nothing", ())
        if speculator is not None:
            self._wire(speculator)
        self.cache.recurrent.depth = 2 + self.max_drafts
        self.graphs: DecodeGraphs | None = None
        # a graph cannot choose the snapshots that it goes on from
        if use_graphs and target.device.type == "cuda" and not target.layout.recurrent:
            self.graphs = DecodeGraphs(target, self.cache, 1 + self.max_drafts, self.capture)
        self.widths: Widths | None = None  # rows of a request in padded forwards
        if native_stack(target) is None:
            self.widths = self.graphs.padded_width if self.graphs is not None else lambda width: width
        if controller is not None:
            controller.widths = self.widths

    def _wire(self, speculator: BaseSpeculator) -> None:
        """Hook up what the speculator needs; for a chain that is what its members need."""
        config = speculator.config
        self.drafts_tokens = config.capabilities.get("proposes_draft_tokens", True)
        self.max_drafts = speculator.num_speculative_tokens if self.drafts_tokens else 0
        self.schedule = KSchedule(self.max_drafts, config.get("options.num_speculative_tokens_per_batch_size"))
        self.needs = speculator.needs
        if self.needs.last or self.needs.boundaries:
            self.capture = HiddenStateCapture(self.target.model, self.needs.last, self.needs.boundaries)

    @torch.inference_mode()
    def start(self, request: Request) -> None:
        """Give an admitted request its cache row and tell the speculator."""
        self.cache.acquire(request.slot)
        if self.speculator is not None:
            prompt = self.states.token_ids[request.slot, : len(request.prompt_token_ids)]
            self.speculator.start(request.slot, prompt)

    @torch.inference_mode()
    def finish(self, request: Request) -> None:
        """Take back the cache row of a request that ended."""
        self.cache.release(request.slot)
        if self.speculator is not None:
            self.speculator.finish(request.slot)
        if self.controller is not None:
            self.controller.finish(request)

    def verify(self, requests: Sequence[Request], chunk: int) -> StepResult:
        """Run the forward and decide what every request emits.

        Requests are not changed, so a failed forward can be tried again with fewer of them.
        """
        begin = time.perf_counter()
        if self.controller is not None:
            self.controller.trim(requests)
        batch = build_batch(self.cache, self.target.layout, requests, chunk, self.target.dtype)
        sampling = _sampling(batch)
        prepared = time.perf_counter()
        rows = self._forward(batch)
        forwarded = time.perf_counter()
        result = self._sample(batch, sampling, rows)
        self.times = StepTimes(prepared - begin, forwarded - prepared, time.perf_counter() - forwarded)
        return result

    def _forward(self, batch: Batch) -> torch.Tensor:
        """Logits [sum(batch.logits_counts), V]."""
        if self.graphs is not None and all(r.num_output for r in batch.requests):
            logits = self.graphs.run(batch)
            if logits is not None:
                return batch.needed(logits)
        return self.target.logits(batch, self.capture)

    def _sample(self, batch: Batch, sampling: _Sampling, rows: torch.Tensor) -> StepResult:
        emitted: list[list[int]] = [[] for _ in batch.requests]
        invalid = [False] * len(emitted)
        where, requests, offsets = sampling.where, sampling.requests, sampling.offsets
        if not where:
            return StepResult(batch, emitted, invalid)
        shaped = process_rows(rows, [r.state.sampling for r in requests], offsets, sampling.drafts)
        verified = self.verifier(shaped, sampling.drafts, **sampling.inputs)
        columns = zip(*(verified.host(name) for name in ("token_ids", "num_sampled", "invalid")), strict=True)
        for i, (tokens, count, bad) in zip(where, columns, strict=True):
            emitted[i], invalid[i] = tokens[:count], bad
        for r, request in enumerate(requests):
            if request.params.logprobs is not None:
                self._record_logprobs(request, rows[offsets[r] :], emitted[where[r]])
        return StepResult(batch, emitted, invalid)

    @staticmethod
    def _record_logprobs(request: Request, rows: torch.Tensor, tokens: list[int]) -> None:
        ids = torch.tensor(tokens, device=rows.device)
        found = gather_logprobs(rows[: len(tokens)], ids, request.params.logprobs or 0)
        columns = zip(found.token_ids.tolist(), found.values.tolist(), found.ranks.tolist(), strict=True)
        request.state.new_logprobs = [
            TokenLogprob(ids[0], values[0], rank, dict(zip(ids[1:], values[1:], strict=True)))
            for ids, values, rank in columns
        ]

    def observe(self, batch: Batch, rejected: Sequence[int]) -> Step | None:
        """Tell the speculator what the forward of ``batch`` settled; ``rejected`` is per request."""
        last, aux = self.capture.take() if self.capture is not None else (None, None)
        if self.speculator is None:
            return None
        begin = time.perf_counter()
        for request in batch.requests:
            request.drafts, request.draft_logits, request.confidences, request.drafts_free = [], None, None, False
        step = settled_step(batch, rejected, self.needs, last, aux)
        self.speculator.observe(step)
        self.times.draft = time.perf_counter() - begin
        return step

    def propose(self, batch: Batch, step: Step | None) -> None:
        """Let the speculator draft for the requests of ``batch`` that go on and want drafts."""
        if self.speculator is None or step is None:
            return
        begin = time.perf_counter()
        k = self.schedule(step.batch_size)
        most = [
            r.num_drafts_allowed(k) if samples and not r.finished else 0
            for r, samples in zip(batch.requests, batch.samples, strict=True)
        ]
        wanted = most
        if self.controller is not None:
            pairs = zip(batch.requests, most, strict=True)
            wanted = [self.controller.choose(r, step.batch_size, count) if count else 0 for r, count in pairs]
        # a chain's members that cost nothing draft whatever the others are asked for
        free = most if any(self.costs_nothing) else wanted
        asked = [i for i in range(len(most)) if wanted[i] or free[i]]
        going = [r for r in batch.requests if not r.finished]
        if asked:
            counts, for_free = [wanted[i] for i in asked], [free[i] for i in asked]
            requests = [batch.requests[i] for i in asked]
            drafts = self.speculator.propose(step.only(asked, counts, for_free))
            hand_out(drafts, requests, list(map(max, counts, for_free)), self.target.vocab_size)
        self.times.draft += time.perf_counter() - begin
        for request in going:
            request.drafted_in = self.times.draft / len(going)


def _sampling(batch: Batch) -> _Sampling:
    where = [i for i, samples in enumerate(batch.samples) if samples]
    requests = [batch.requests[i] for i in where]
    drafts = [batch.requests[i].drafts if batch.num_drafts[i] else [] for i in where]
    inputs = {
        "temperature": [r.params.temperature for r in requests],
        "seeds": [r.seed for r in requests],
        "positions": [len(r.token_ids) for r in requests],
        "num_drafts": [len(d) for d in drafts],
        "draft_laws": draft_laws(requests) if requests else None,
    }
    offsets = [0, *accumulate(1 + len(d) for d in drafts)]
    return _Sampling(where, requests, offsets, drafts, inputs)
