"""Where the command meets the system: its streams, its signals, and one line for whatever fails underneath."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

OK, COULD_NOT_RUN = 0, 2
TRACEBACK = "SPECDEC_TRACEBACK"  # set it to see where an unexpected error came from
LONGEST = 400  # characters of an error's text
# what libraries say when the system gives no more memory or threads
_NO_MEMORY = re.compile(
    r"allocate memory|bad_alloc|out of memory|failed to map segment|start new thread|Resource temporarily", re.I
)


def run(main: Callable[[], int], name: str) -> int:
    """The exit code of ``main``; nothing that it raises gets through, and nothing is lost without a word."""
    missing = open_missing_streams()
    if "stdout" in missing:
        return _say(name, "standard output is closed, so results have nowhere to go")
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal lacks is no reason to lose the rest
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    threading.excepthook = lambda failed: _say(name, explain(failed.exc_value)) and None
    before = _end_kindly()
    try:
        code = main()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next one need not wait for anything
        _to_stderr("interrupted")
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    except BrokenPipeError:  # the reader went away (`specdec list | head`)
        return COULD_NOT_RUN
    except BaseException as error:
        if os.environ.get(TRACEBACK):
            raise
        return _say(name, explain(error))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _drop_what_cannot_be_written()


def open_missing_streams() -> set[str]:
    """Give the process the three standard streams it was started without, so that no file takes their numbers."""
    missing = {name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None}
    if missing:
        while (handle := os.open(os.devnull, os.O_RDWR)) < 3:
            pass
        os.close(handle)
        for name in missing:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    return missing


def explain(error: BaseException | None) -> str:
    """One line for an error that no verb expected."""
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return "out of memory" + (f": {text}" if text else "")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF):
        return f"cannot write {error.filename or 'standard output'}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, ImportError):
        return f"a library cannot be loaded: {text}"
    kind = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"unexpected {kind}{_place(error)}; this is a bug, and {TRACEBACK}=1 shows where it came from"


def _place(error: BaseException | None) -> str:
    """The file and line of this package in which an error was raised."""
    here, place = os.path.dirname(os.path.dirname(__file__)), ""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(here) and file != __file__:
            place = f" (specdec{file.removeprefix(here)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def _end_kindly() -> dict[int, Any]:
    """Let SIGTERM and SIGHUP unwind the process, so that its compilers, workers and scratch end with it."""

    def stop(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    before = {}
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, stop)
    return before


def _drop_what_cannot_be_written() -> None:
    """Leave nothing in the streams that Python would complain about at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            except (OSError, ValueError):  # no file underneath
                continue


def _say(name: str, text: str) -> int:
    _to_stderr(f"{name}: error: {text}")
    return COULD_NOT_RUN


def _to_stderr(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # closed, too
        return
