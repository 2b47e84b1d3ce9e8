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


def describe(error: Exception) -> str:
    """What to write on a request that ended with this error."""
    text, name = str(error), type(error).__name__
    plain = isinstance(error, (RuntimeError, ValueError))
    return text if text and plain else f"{name}: {text}" if text else name
