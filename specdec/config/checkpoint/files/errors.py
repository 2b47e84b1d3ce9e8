"""The fault a checkpoint reader raises; the loader turns it into a diagnostic."""

from __future__ import annotations


class CheckpointFault(ValueError):
    """A checkpoint file is missing, damaged or in a form that is not read."""

    def __init__(self, message: str, code: str = "checkpoint-unreadable", fix: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix
