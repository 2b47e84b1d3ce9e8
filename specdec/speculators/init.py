"""From a finalized configuration to a running speculator."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, TypeVar

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.network import DraftNetwork
from specdec.errors import EngineError
from specdec.speculators.base import BaseSpeculator

T = TypeVar("T")


class SpeculatorError(EngineError):
    """A record's ``implementation`` cannot be built; the message names the record and what is wrong."""


def load_class(implementation: str, record: str) -> type[BaseSpeculator]:
    """Import ``package.module:Class`` and check that it is a complete ``BaseSpeculator``."""
    cls: type[BaseSpeculator] = _named(implementation, record, "implementation", BaseSpeculator)  # type: ignore[type-abstract]
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise SpeculatorError(
            f"record {record!r} names implementation {implementation!r}, which lacks the methods {', '.join(missing)}; "
            "define them"
        )
    return cls


def load_network(config: SpeculativeConfig) -> type[DraftNetwork]:
    """The class of draft network that the record names; raises ``SpeculatorError`` where it cannot be had."""
    record = config.record
    if record.draft_model is None:
        raise SpeculatorError(f"record {record.name!r} names no draft_model; write it as package.module:Class")
    return _named(record.draft_model, record.name, "draft_model", DraftNetwork)


def _named(name: str, record: str, key: str, base: type[T]) -> type[T]:
    module_name, _, attribute = name.partition(":")
    where = f"record {record!r} names {key} {name!r}"
    if not module_name or not attribute:
        raise SpeculatorError(f"{where}; write it as package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpeculatorError(f"{where}, but {module_name} cannot be imported: {error}") from error
    cls = getattr(module, attribute, None)
    if cls is None:
        raise SpeculatorError(f"{where}, but {module_name} has no {attribute}")
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise SpeculatorError(f"{where}, which is not a subclass of {base.__module__}.{base.__qualname__}")
    return cls


def init_speculator(config: SpeculativeConfig, device: torch.device, req_states: Any = None) -> BaseSpeculator:
    """Build the speculator a configuration names; ``req_states`` goes only to a constructor that names it.

    Raises ``SpeculatorError`` for a record without an implementation here, a class that cannot be imported, one that
    is no ``BaseSpeculator``, or one that lacks methods.
    """
    record = config.record
    if record.implementation is None:
        raise SpeculatorError(
            f"record {record.name!r} has no implementation for the embedded engine; run it with `specdec export vllm`"
        )
    cls = load_class(record.implementation, record.name)
    if "req_states" in inspect.signature(cls.__init__).parameters:
        return cls(config, device, req_states=req_states)  # type: ignore[call-arg]
    return cls(config, device)
