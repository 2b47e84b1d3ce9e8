"""What a caller holds of the requests it submitted: their events, their outputs, and the way to end them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from specdec.engine.outputs import Delta, RequestOutput
from specdec.engine.report import request_output
from specdec.engine.requests import Request
from specdec.engine.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.engine.core import Engine
    from specdec.engine.front import Front


@dataclass(frozen=True)
class Submission:
    """One prompt, ready for the engine."""

    token_ids: Sequence[int]
    params: SamplingParams
    prompt: str | None = None
    request_id: str | None = None
    failure: str | None = None  # why it cannot run, found before it got here

    def add_to(self, engine: Engine) -> list[Request]:
        """The n requests of this prompt, queued; a prompt that cannot run becomes one failed request."""
        first = engine.add(self.token_ids, self.params, prompt=self.prompt, request_id=self.request_id)
        if self.failure is not None:
            first.error = self.failure
            return [first]
        more = [
            engine.add(self.token_ids, self.params, prompt=self.prompt, parent=first.request_id, child=child)
            for child in range(1, self.params.n)
        ]
        return [first, *more]


class Handle:
    """The requests of one ``submit``.

    Iterate over it (``for``, ``async for``) for ``Delta`` pieces as they come, or wait for ``result()`` (``await
    handle.finished()``). Leaving an iteration early ends the requests, as ``cancel`` does. A request that failed says so in
    its output; an exception is raised only when the engine itself failed. One thread, or one task, reads a handle.
    """

    def __init__(
        self, front: Front, eager: bool, deltas: bool, on_step: Callable[[Engine, list[Request]], None] | None
    ) -> None:
        self._front, self.on_step, self._eager, self._deltas = front, on_step, eager, deltas
        self.groups: list[list[Request]] = []  # per prompt its completions; filled by the engine's thread
        self.failure: BaseException | None = None
        self._mine: set[Request] = set()
        self._ended: set[Request] = set()  # requests whose end was seen
        # simple queues may be written from a destructor in any thread; None = nothing comes any more
        self._events: SimpleQueue[Delta | None] = SimpleQueue()
        self._waiting = self._done = self._read = False
        self._tell_loop: Callable[[], object] | None = None

    # for callers

    @property
    def done(self) -> bool:
        """Whether all requests ended; the last pieces may still wait to be read."""
        return self._done

    def cancel(self, wait: bool = True) -> None:
        """End what still runs; what was emitted stays in the outputs. ``wait`` until the engine has let go."""
        if not self._done:
            self._front.cancel(self, wait)

    def outputs(self) -> list[RequestOutput]:
        """One output per prompt, as they stand now."""
        return [request_output(group, self._front.config) for group in self.groups]

    def result(self, timeout: float | None = None) -> list[RequestOutput]:
        """Wait for the end; raises ``TimeoutError`` after ``timeout`` seconds, and what the engine failed of."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._next(end) is not None:
            pass
        return self.outputs()

    def __iter__(self) -> Iterator[Delta]:
        try:
            while (delta := self._next()) is not None:
                yield delta
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        self._eager = True  # a loop does not wait in a way that the engine could see

        def tell() -> None:
            loop.call_soon_threadsafe(arrived.set)

        self._tell_loop = tell
        self._front.wake()
        try:
            while not self._read:
                arrived.clear()
                while not self._events.empty():
                    if (delta := self._taken(self._events.get())) is not None:
                        yield delta
                if not self._read:
                    await arrived.wait()
        finally:
            if self._tell_loop is tell:  # an iteration that was left early may be closed after the next one began
                self._tell_loop = None
            self.cancel(wait=False)

    async def finished(self) -> list[RequestOutput]:
        """The outputs, once all requests ended."""
        async for _ in self:
            pass
        return self.outputs()

    def _next(self, end: float | None = None) -> Delta | None:
        """The next piece, None at the end."""
        if self._read:
            return self._taken(None)
        if self._events.empty():
            self._front.check_waiting()
            self._waiting = True
            self._front.wake()
        try:
            return self._taken(self._events.get(timeout=None if end is None else max(0.0, end - time.monotonic())))
        except Empty:
            raise TimeoutError("the requests have not ended in this time") from None
        finally:
            self._waiting = False

    def _taken(self, event: Delta | None) -> Delta | None:
        if event is None:
            self._read = True
            if self.failure is not None:
                raise self.failure
        return event

    # for the engine's thread

    def start(self, prompts: Sequence[Submission], engine: Engine) -> None:
        """Queue the requests."""
        for prompt in prompts:
            self.groups.append(prompt.add_to(engine))
            self._mine.update(self.groups[-1])

    @property
    def requests(self) -> list[Request]:
        return [request for group in self.groups for request in group]

    @property
    def wants(self) -> bool:
        """Whether the engine should go on for this handle."""
        return self._eager or self._waiting

    @property
    def has_new_errors(self) -> bool:
        return any(r.finish_reason == "error" and r not in self._ended for r in self._mine)

    def advance(self, moved: Sequence[Request] | None) -> bool:
        """Hand out what its requests, or those that ``moved``, have new; True when all have ended."""
        for request in self.requests if moved is None else moved:
            if request in self._ended:
                continue
            if request.finished:
                self._ended.add(request)
            if self._deltas:
                delta = take_delta(request)
                if delta.text or delta.token_ids or delta.finish_reason:
                    self._put(delta)
        if len(self._ended) < len(self._mine):
            return False
        self.end(self.failure)
        return True

    def end(self, failure: BaseException | None) -> None:
        """Nothing comes after this."""
        self.failure, self._done = failure, True
        self._put(None)

    def _put(self, event: Delta | None) -> None:
        self._waiting = False
        self._events.put(event)
        if (tell := self._tell_loop) is not None:
            try:
                tell()
            except RuntimeError:  # the loop is closed: nobody listens
                self._tell_loop = None


def take_delta(request: Request) -> Delta:
    """What ``request`` has to hand out since the last time: whole tokens with their text."""
    state = request.state
    tokens, characters = (request.num_output, len(state.text)) if request.finished else state.streamable
    first = len(request.prompt_token_ids) + state.streamed_tokens
    delta = Delta(
        request_id=request.parent or request.request_id,
        index=request.child,
        text=state.text[state.streamed_text : characters],
        token_ids=request.token_ids[first : len(request.prompt_token_ids) + tokens],
        finish_reason=request.finish_reason,
        error=request.error,
        stop_reason=request.stop_reason,
        logprobs=None if request.logprobs is None else request.logprobs[state.streamed_tokens : tokens],
    )
    state.streamed_text, state.streamed_tokens = characters, tokens
    return delta
