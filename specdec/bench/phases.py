"""``specdec generate`` with a clock on the parts of its start; the last line on standard error is JSON.

A part includes its imports, and not the parts inside it.
"""

from __future__ import annotations

import functools
import importlib
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# part -> the functions that do it, found where they are called
PARTS = {
    "conversion of the checkpoint": [("specdec.model.target", "converted_directory")],
    "tokenizer": [("specdec.model.target", "_load_tokenizer")],
    "weights": [("specdec.engine.llm", "load_target")],
    "waiting for the kernels": [("specdec.model.accelerate", "load")],
    "repacking for the kernels": [("specdec.engine.llm", "accelerate_in_place")],
    "prompt": [("specdec.engine.runner", "Runner.verify")],
}


class Clock:
    """Seconds per part; time inside a nested part is taken from the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[float] = []  # seconds of nested parts, innermost last

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        self._open.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[part] = self.seconds.get(part, 0.0) + spent - self._open.pop()
            if self._open:
                self._open[-1] += spent

    def watch(self, parts: dict[str, list[tuple[str, str]]]) -> None:
        """From now on time these functions."""
        for part, places in parts.items():
            for module, name in places:
                owner: Any = importlib.import_module(module)
                *path, last = name.split(".")
                for step in path:
                    owner = getattr(owner, step)
                setattr(owner, last, self._timed(part, getattr(owner, last)))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            with self.time(part):
                return function(*args, **options)

        return timed


def main(arguments: list[str]) -> int:
    """Run ``python -m specdec generate`` with ``arguments`` in this process; returns its exit code."""
    clock, start = Clock(), time.perf_counter()
    from specdec.model.load import light_imports

    stock = light_imports.light_imports

    @contextmanager
    def watched() -> Iterator[None]:
        clock.seconds["configuration"] = time.perf_counter() - start
        with clock.time("import of torch"):
            importlib.import_module("torch")
        with clock.time("import of transformers"):
            imports = stock()
            imports.__enter__()
        try:
            with clock.time("import of the engine"):
                clock.watch(PARTS)
            yield
        finally:
            imports.__exit__(*sys.exc_info())

    light_imports.light_imports = watched
    sys.argv = ["specdec", "generate", *arguments]
    code: Any = 0
    try:
        runpy.run_module("specdec", run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    print(json.dumps(clock.seconds), file=sys.stderr)
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
