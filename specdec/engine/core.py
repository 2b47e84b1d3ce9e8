"""Continuous batching: admission to slots, chunked prefill, decoding, endings and aborts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

import torch

from specdec.engine.metrics import EngineMetrics
from specdec.engine.policy.lengths import rows_of
from specdec.engine.requests import Request, RequestStates, derive_seed
from specdec.engine.runner import Runner, StepResult
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.engine.state import RequestState
from specdec.errors import EngineError, RequestError, describe
from specdec.model.batch import Batch
from specdec.model.target import Target


class Engine:
    """Runs many requests over a fixed number of slots. One thread calls it; ``Front`` lets others submit to that one.

    ``step()`` runs one prefill forward (if a prompt waits) and one decode forward, and returns the requests that
    moved. ``add()`` never raises for a bad request: the request it returns is already finished, with its ``error``.
    """

    def __init__(
        self, target: Target, runner: Runner, states: RequestStates, seed: int, max_batched_tokens: int
    ) -> None:
        self.target, self.runner, self.states = target, runner, states
        self.seed, self.max_batched_tokens = seed, max_batched_tokens
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_added = 0
        self.owner: int | None = None  # the thread that calls it at present; None = nobody does
        self.metrics = EngineMetrics()

    @property
    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def add(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        prompt: str | None = None,
        request_id: str | None = None,
        parent: str | None = None,
        child: int = 0,
    ) -> Request:
        """Queue a request; one that cannot run comes back finished with ``error`` set."""
        self._check_caller()
        index, self.num_added = self.num_added, self.num_added + 1
        seed = params.seed if params.seed is not None else derive_seed(self.seed, index)
        if params.seed is not None and child:
            seed = derive_seed(params.seed, child)
        limit = self.states.max_model_len
        if params.max_tokens is not None:
            limit = min(limit, len(prompt_token_ids) + params.max_tokens)
        request = Request(
            request_id=request_id or f"request-{index}",
            index=index,
            prompt_token_ids=list(prompt_token_ids),
            params=params,
            seed=seed,
            max_total_tokens=limit,
            prompt=prompt,
            parent=parent,
            child=child,
        )
        request.state = RequestState()
        request.metrics.arrival_time, request.metrics.prompt_tokens = time.perf_counter(), len(prompt_token_ids)
        try:
            self._check(request)
            request.state.prepare(request, self.target, self.states.max_model_len)
        except Exception as error:  # also what a tokenizer says of words it cannot take
            self._fail(request, error)
            return request
        self.waiting.append(request)
        return request

    def _check(self, request: Request) -> None:
        count, limit = len(request.prompt_token_ids), self.states.max_model_len
        if count == 0:
            raise RequestError("the prompt is empty; give at least one token")
        if count >= limit:
            raise RequestError(
                f"the prompt has {count} tokens, but max_model_len is {limit} and one must be left for the output; "
                "shorten the prompt or raise max_model_len"
            )
        vocab = self.target.vocab_size
        bad = next((t for t in request.prompt_token_ids if not 0 <= t < vocab), None)
        if bad is not None:
            raise RequestError(f"the prompt holds token id {bad}; allowed: 0 to {vocab - 1}")
        k, most = request.params.num_speculative_tokens, self.runner.max_drafts
        if k is not None and k > most:
            raise RequestError(
                f"num_speculative_tokens is {k} for this request; allowed: 0 to {most}, as the engine was configured"
            )

    def _check_caller(self) -> None:
        if self.owner is not None and self.owner != threading.get_ident():
            raise EngineError("the engine runs requests for another thread; use submit, stream or generate")

    def abort(self, request: Request) -> None:
        """End a request now; what it emitted so far stays in its output."""
        self._check_caller()
        if request.finished:
            return
        if request in self.waiting:
            self.waiting.remove(request)
        self._end(request, "abort")

    @torch.inference_mode()  # once a step: entering it costs as much as a small operation
    def step(self) -> list[Request]:
        """Advance; returns the requests that emitted tokens or ended."""
        self._check_caller()
        while self.waiting and self.states.num_free:
            request = self.waiting.popleft()
            self.states.admit(request)
            self.running.append(request)
            try:
                self.runner.start(request)
            except Exception as error:
                self._fail(request, error)
                raise
        moved: list[Request] = []
        decoding = [r for r in self.running if r.num_output]
        prefill, chunk = self._prefill_group()
        if prefill:
            moved += self._run(prefill, chunk)
        if decoding:
            if self.runner.controller is not None:
                self.runner.controller.crowded = bool(self.waiting)
            moved += self._run(decoding, 1)
        return moved

    def _prefill_group(self) -> tuple[list[Request], int]:
        """Prompts to advance in one forward: the oldest, and others of about its length, within the token budget."""
        group: list[Request] = []
        chunk = 0
        for request in self.running:
            if request.num_output:
                continue
            if not group:
                chunk = min(request.num_pending, self.max_batched_tokens)
                group.append(request)
            elif chunk // 2 <= request.num_pending <= chunk and (len(group) + 1) * chunk <= self.max_batched_tokens:
                group.append(request)
        return group, chunk

    def _run(self, group: list[Request], chunk: int) -> list[Request]:
        """One forward of a group; if it fails, each request alone, so that only those that cannot run fail."""
        try:
            result = self.runner.verify(group, chunk)
        except Exception as error:  # a constraint is the caller's program and raises what it likes
            if len(group) > 1:
                return [moved for request in group for moved in self._run([request], chunk)]
            self._fail(group[0], error)
            return group
        batch, emitted = result.batch, result.emitted
        rejected = self._update(result)
        try:
            self.runner.propose(batch, self.runner.observe(batch, rejected))
        except Exception as error:
            # a broken speculator is nobody's bad request: end these requests, keep the engine usable, and say so
            for request in batch.requests:
                if not request.finished:
                    self._fail(request, error)
            raise
        finally:
            self._account(batch, prefill=chunk > 1)
            for request in batch.requests:
                if request.finished and request.slot >= 0:
                    self._release(request)
        return [r for r, tokens in zip(batch.requests, emitted, strict=True) if tokens or r.finished]

    def _update(self, result: StepResult) -> list[int]:
        """Move every request on by what it computed and emitted; returns the trailing rows of each that do not hold."""
        rejected = []
        batch, now = result.batch, time.perf_counter()
        self._tell_costs(batch)
        for i, (request, tokens) in enumerate(zip(batch.requests, result.emitted, strict=True)):
            drafted = batch.num_drafts[i]
            accepted = max(0, len(tokens) - 1)
            rejected.append(drafted - accepted)
            request.num_computed += batch.counts[i] - (drafted - accepted)
            self.runner.cache.length_of[request.slot] = request.num_computed
            if not tokens:
                continue
            if result.invalid[i]:
                request.error, request.finish_reason = "the target gave no finite logit at this position", "error"
                continue
            try:
                cut = request.state.push(request, tokens)
            except Exception as error:
                request.error, request.finish_reason = describe(error), "error"
                continue
            rejected[-1] += len(tokens) - cut.kept  # accepted, but behind the end
            old = len(request.token_ids)
            request.token_ids += tokens[: cut.kept]
            self.states.append(request.slot, old, tokens[: cut.kept])
            request.finish_reason, request.stop_reason = cut.finish_reason, cut.stop_reason
            metrics = request.metrics
            metrics.first_token_time = metrics.first_token_time or now
            metrics.counts.record_step(drafted, accepted, cut.kept)
            self._tell(request, drafted, accepted)
        return rejected

    def _account(self, batch: Batch, prefill: bool) -> None:
        """Add the latest step's seconds to the phases."""
        times = self.runner.times
        self.metrics.add_seconds("schedule", times.prepare)
        self.metrics.add_seconds("prefill" if prefill else "verify", times.forward)
        self.metrics.add_seconds("sample", times.verify)
        self.metrics.add_seconds("draft", times.draft)

    def _tell_costs(self, batch: Batch) -> None:
        """Report what a decode forward and its drafts took to whoever decides how much to draft."""
        controller, times = self.runner.controller, self.runner.times
        if controller is not None and batch.requests[0].num_output:
            drafting = sum(request.drafted_in for request in batch.requests)
            seconds = times.forward + times.verify
            rows = rows_of(batch.counts, widths=self.runner.widths)
            controller.observe_forward(len(batch.requests), rows, seconds, drafting)

    def _tell(self, request: Request, drafted: int, accepted: int) -> None:
        """Report a round to whoever decides how much to draft and to verify."""
        if self.runner.controller is not None and request.num_output > 1:  # the first token is a prompt's
            self.runner.controller.observe(request, drafted, accepted)

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = describe(error)
        self._end(request, "error")

    def _end(self, request: Request, reason: str) -> None:
        request.finish_reason = reason
        self._release(request)

    def _release(self, request: Request) -> None:
        """Close the books on a finished request and free its slot."""
        request.metrics.finish_time, request.metrics.finish_reason = time.perf_counter(), request.finish_reason
        self.metrics.finish(request.metrics)
        if request.slot < 0:
            return
        self.running.remove(request)
        self.runner.finish(request)
        self.states.release(request.slot)
        request.slot = -1
        request.drafts, request.draft_logits = [], None
