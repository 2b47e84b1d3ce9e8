"""Errors of the embedded engine: what is wrong, what is allowed, and one fix."""

from __future__ import annotations


class EngineError(ValueError):
    """Anything the embedded engine refuses; the message is complete and needs no traceback."""


class TargetError(EngineError):
    """The target cannot be found, read or run by the embedded engine."""


class RequestError(EngineError):
    """One request cannot run; it is recorded on that request's output and nobody else's."""


class OutOfMemory(EngineError):
    """Weights and KV slots do not fit the device."""
