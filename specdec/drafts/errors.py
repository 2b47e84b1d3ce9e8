"""What a draft network refuses: a checkpoint that cannot be read, or that does not fit its configuration."""

from __future__ import annotations

from specdec.errors import EngineError


class DraftError(EngineError):
    """A draft checkpoint cannot be loaded; the message names the file, the tensor, and what was expected."""
