"""Data files of the distribution: inside the wheel, or at the root of the repository."""

from __future__ import annotations

from pathlib import Path


def data_file(name: str) -> Path:
    """The path of ``speculators.yaml`` or of a file under ``schemas/``."""
    here = Path(__file__).resolve()
    packaged = here.parent.parent / "data" / name
    return packaged if packaged.exists() else here.parents[2] / name


def schema_path(name: str) -> Path:
    """The path of a shipped JSON Schema."""
    return data_file(f"schemas/{name}")
