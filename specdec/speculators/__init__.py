"""Speculators: the base class and one module per algorithm."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "BaseSpeculator": "specdec.speculators.base",
    "Drafts": "specdec.speculators.base",
    "Step": "specdec.speculators.base",
    "TargetHandle": "specdec.model.handle",
    "SpeculatorError": "specdec.speculators.init",
    "init_speculator": "specdec.speculators.init",
}
__all__ = ["BaseSpeculator", "Drafts", "SpeculatorError", "Step", "TargetHandle", "init_speculator"]

if TYPE_CHECKING:
    from specdec.model.handle import TargetHandle
    from specdec.speculators.base import BaseSpeculator, Drafts, Step
    from specdec.speculators.init import SpeculatorError, init_speculator


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'specdec.speculators' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
