"""The fault a checkpoint reader raises; the loader turns it into a diagnostic."""

from __future__ import annotations


class CheckpointFault(ValueError):
    """A checkpoint file is missing, damaged or in a form that is not read."""

    def __init__(self, message: str, code: str = "checkpoint-unreadable", fix: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix


def lfs_pointer(name: str, start: bytes) -> CheckpointFault | None:
    """The fault of a file that is a Git LFS pointer, by its first bytes; None for any other file."""
    if not start.startswith(b"version ") or b"git-lfs" not in start:
        return None
    message = f"{name} is a Git LFS pointer, not the file itself: the repository was cloned without its large files"
    return CheckpointFault(message, code="git-lfs-pointer", fix="run 'git lfs pull' in it, or download the checkpoint")
