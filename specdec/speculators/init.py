"""From a finalized configuration to a running speculator."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.errors import EngineError
from specdec.speculators.base import BaseSpeculator


class SpeculatorError(EngineError):
    """A record's ``implementation`` cannot be built; the message names the record and what is wrong."""


def load_class(implementation: str, record: str) -> type[BaseSpeculator]:
    """Import ``package.module:Class`` and check that it is a complete ``BaseSpeculator``."""
    module_name, _, name = implementation.partition(":")
    where = f"record {record!r} names implementation {implementation!r}"
    if not module_name or not name:
        raise SpeculatorError(f"{where}; write it as package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpeculatorError(f"{where}, but {module_name} cannot be imported: {error}") from error
    cls = getattr(module, name, None)
    if cls is None:
        raise SpeculatorError(f"{where}, but {module_name} has no {name}")
    if not (isinstance(cls, type) and issubclass(cls, BaseSpeculator)):
        raise SpeculatorError(f"{where}, which is not a subclass of specdec.speculators.base.BaseSpeculator")
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise SpeculatorError(f"{where}, which lacks the methods {', '.join(missing)}; define them")
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
