"""Import transformers without the parts of torch that inference on one device never runs.

Torch's compiler and its distributed tensors are a third of all modules that transformers imports, and half of the time.
Reading the sources of all models for their names, as transformers does twice, is most of the rest.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
MASKING = f"{COMPILER}._trace_wrapped_higher_order_op"  # transformers' masks take one name from it
SCANNER, SCAN = "transformers.utils.import_utils", "create_import_structure_from_path"
MARKS = frozenset({"allow_in_graph", "assume_constant_result", "disable"})  # decorators that only the compiler reads


@contextmanager
def light_imports() -> Iterator[None]:
    """Import what a causal language model of transformers needs, and load an engine inside; for a process of its own.

    From here on transformers takes torch for one without distributed tensors, and functions that were defined or
    first called inside carry no marks for ``torch.compile``. The compiler itself is loaded when something asks for
    more of it, inside or afterwards.
    """
    import torch

    if COMPILER in sys.modules or "transformers.modeling_utils" in sys.modules:
        yield
        return
    with _deferred_compiler():
        available = torch.distributed.is_available
        torch.distributed.is_available = lambda: False
        try:
            for name in ("modeling_utils", "modeling_layers", "models.auto"):
                importlib.import_module(f"transformers.{name}")
        finally:
            torch.distributed.is_available = available
        yield


class _Deferred(ModuleType):
    """Stands in for a module of the compiler: its decorators mark nothing, everything else loads the real module."""

    __path__ = ()  # submodules are asked of ``_Finder``

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _unmarked if name in MARKS else getattr(_load(self.__name__), name)


def _unmarked(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
    return _unmarked if function is None else function


def _masking_context() -> Any:
    return importlib.import_module(MASKING).TransformGetItemToIndex()


def _load(name: str) -> ModuleType:
    """The real module, from now on for everyone."""
    for stand_in in (COMPILER, MASKING):
        if isinstance(sys.modules.get(stand_in), _Deferred):
            del sys.modules[stand_in]
    return importlib.import_module(name)


class _Finder:
    """Finds submodules of a compiler that is not loaded yet, by loading it; and lets folders be read once."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == SCANNER:
            return _remembering(PathFinder.find_spec(name, path, target))
        if not name.startswith(f"{COMPILER}.") or not isinstance(sys.modules.get(COMPILER), _Deferred):
            return None
        return ModuleSpec(name, _Loaded(_load(name)))


class _Loaded:
    """A loader of a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


def _remembering(spec: ModuleSpec | None) -> ModuleSpec | None:
    """A spec whose module, once run, remembers the folders it has scanned."""
    loader: Any = spec and spec.loader
    if loader is not None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            if scan := getattr(module, SCAN, None):
                setattr(module, SCAN, functools.cache(scan))

        loader.exec_module = exec_module
    return spec


@contextmanager
def _deferred_compiler() -> Iterator[None]:
    finder, compiler, masking = _Finder(), _Deferred(COMPILER), _Deferred(MASKING)
    masking.__dict__["TransformGetItemToIndex"] = _masking_context
    sys.meta_path.insert(0, finder)
    sys.modules |= {COMPILER: compiler, MASKING: masking}
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for stand_in in (COMPILER, MASKING):
            if isinstance(sys.modules.get(stand_in), _Deferred):
                del sys.modules[stand_in]
