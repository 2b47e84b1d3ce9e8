"""One thread owns an ``Engine``; everybody else submits requests to it and waits for their own events."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.engine.core import Engine
from specdec.engine.handle import Handle, Submission
from specdec.engine.requests import Request
from specdec.errors import EngineError

Command = Callable[[], None]
PATIENCE = 30.0  # seconds that the end of the process waits for a step in progress


class Front:
    """A safe way to an engine for any number of threads and event loops.

    ``submit`` returns at once with a ``Handle``. The engine steps while somebody waits for a handle, or a handle is
    eager; each step moves all requests, and what moved is handed to its own handle. All calls of the engine happen in
    one thread, which lives as long as the front and holds nothing while there is nothing to do.
    """

    def __init__(self, engine: Engine, config: SpeculativeConfig | None = None) -> None:
        self.engine, self.config = engine, config
        self._commands: deque[Command] = deque()
        self._live: list[Handle] = []
        self._handle_of: dict[Request, Handle] = {}
        self._owner = _Owner()
        weakref.finalize(self, self._owner.end).atexit = False  # at exit: ``_end_all``

    def submit(
        self,
        prompts: Sequence[Submission],
        *,
        eager: bool = True,
        deltas: bool = True,
        on_step: Callable[[Engine, list[Request]], None] | None = None,
    ) -> Handle:
        """Queue prompts together; never blocks, and never raises for a prompt that cannot run.

        eager: run also while nobody waits for the handle. deltas: keep what every step brings, for who iterates.
        ``on_step(engine, moved)`` is called in the engine's thread after every step that moved one of the requests.
        """
        if self._owner.closed:
            raise EngineError("this engine is closed")
        handle = Handle(self, eager, deltas, on_step)
        self._call(lambda: self._add(handle, prompts))
        return handle

    def cancel(self, handle: Handle, wait: bool = True) -> None:
        """End what is left of a handle; with ``wait``, return when the engine has let go of it."""
        done: SimpleQueue[None] = SimpleQueue()

        def end() -> None:
            if handle in self._live:
                self._abort(handle)
                self._hand_out([handle], None)
            done.put(None)

        self._call(end)
        if wait and not self._owner.is_me():
            self._owner.wait(done)

    def wake(self) -> None:
        """Somebody waits for a handle."""
        self._owner.put(self._work)

    def close(self) -> None:
        """End all requests and the thread; who waits for them gets an ``EngineError``."""
        self.check_waiting()
        self._owner.end()
        while self._commands:  # what was submitted but not begun
            self._commands.popleft()()
        self._fail(self._live, EngineError("the engine was closed"))

    def check_waiting(self) -> None:
        """Refuse to wait in the engine's own thread, which would never end."""
        if self._owner.is_me():
            raise EngineError("this waits for the engine from inside one of its steps (on_step); do it outside")

    def _call(self, command: Command) -> None:
        self._commands.append(command)
        self._owner.put(self._work)

    # from here on: the engine's thread only

    def _work(self) -> None:
        """Run commands and steps until nobody waits for more."""
        self.engine.owner = threading.get_ident()
        if (device := self.engine.target.device).type == "cuda":
            torch.cuda.set_device(device)
        try:
            self._hand_out(self._live, None)  # somebody may have called the engine meanwhile
            while not self._owner.closed:
                while self._commands:
                    self._commands.popleft()()
                if not any(handle.wants for handle in self._live):
                    return
                self._step()
        except BaseException as error:  # no caller may wait for ever
            self._fail(self._live, error)
        finally:
            self.engine.owner = None

    def _step(self) -> None:
        try:
            moved = self.engine.step()
        except BaseException as error:
            # the handles of requests that this ended hear of it; when it ended none, the engine is stuck
            self._fail([h for h in self._live if h.has_new_errors] or self._live, error)
            moved = []
        by_handle: dict[Handle, list[Request]] = {}
        for request in moved:
            if (handle := self._handle_of.get(request)) is not None:
                by_handle.setdefault(handle, []).append(request)
        for handle, mine in by_handle.items():
            if handle.on_step is not None:
                try:
                    handle.on_step(self.engine, mine)
                except BaseException as error:  # its own caller's
                    self._fail([handle], error)
                    continue
            self._hand_out([handle], mine)
        if not moved or not self.engine.has_unfinished:  # what a step does not report: aborts from inside, failures
            self._hand_out(self._live, None)
            if self._live and not self.engine.has_unfinished:
                self._fail(self._live, EngineError("the engine has lost these requests"))

    def _hand_out(self, handles: Sequence[Handle], moved: Sequence[Request] | None) -> None:
        """Tell handles what is new, of all their requests or of those that ``moved``, and forget those that ended."""
        self._forget([handle for handle in handles if handle.advance(moved)])

    def _forget(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            self._live.remove(handle)
            for request in handle.requests:
                self._handle_of.pop(request, None)

    def _add(self, handle: Handle, prompts: Sequence[Submission]) -> None:
        self._live.append(handle)
        try:
            handle.start(prompts, self.engine)
        except BaseException as error:
            self._fail([handle], error)
            return
        self._handle_of |= dict.fromkeys(handle.requests, handle)
        self._hand_out([handle], None)  # some may have failed at once

    def _abort(self, handle: Handle) -> None:
        for request in handle.requests:
            self.engine.abort(request)

    def _fail(self, handles: Sequence[Handle], error: BaseException) -> None:
        """End handles with an error that their callers get."""
        failed = list(handles)
        self._forget(failed)
        for handle in failed:
            try:
                self._abort(handle)
            finally:
                handle.end(error)


class _Owner:
    """The thread. It holds its inbox only, so that an engine nobody uses can go; started by the first command."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[Command | None] = SimpleQueue()
        self.closed = False
        self._thread: threading.Thread | None = None
        self._process = 0
        self._starting = threading.RLock()  # a destructor may come here while it is held

    def put(self, command: Command) -> None:
        self.inbox.put(command)
        with self._starting:
            if self._process != os.getpid():  # a forked process has the object, but not the thread
                self._process = os.getpid()
                self._thread = threading.Thread(target=_serve, args=(self.inbox,), name="specdec-engine", daemon=True)
                self._thread.start()
                _running.add(self)

    def is_me(self) -> bool:
        return self._thread is threading.current_thread()

    def wait(self, done: SimpleQueue[None]) -> None:
        """Wait for the thread to get there, or to be closed."""
        while not self.closed:
            with suppress(Empty):
                return done.get(timeout=1.0)

    def end(self) -> None:
        """Ask the thread to end after its step, and wait for that."""
        self.closed = True
        self.inbox.put(None)
        if self._thread is not None and self._process == os.getpid() and not self.is_me():
            self._thread.join(PATIENCE)


def _serve(inbox: SimpleQueue[Command | None]) -> None:
    while (command := inbox.get()) is not None:
        command()
        del command


_running: weakref.WeakSet[_Owner] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Let no thread be inside torch when the interpreter goes."""
    for owner in list(_running):
        owner.end()
