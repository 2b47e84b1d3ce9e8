"""Whether an installed package brings records, told from the names of folders: ``importlib.metadata`` takes 30 ms to ask."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.machinery import PathFinder

GROUP = "specdec.speculators"  # the entry points that name records files
_METADATA = (".dist-info", ".egg-info")


@lru_cache(maxsize=1)
def packages_may_bring_records() -> bool:
    """False only when no installed package has an entry point of ``GROUP``; what is no plain folder may hold one."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return True
    return any(_may_announce(folder or ".") for folder in sys.path)


def _may_announce(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except NotADirectoryError:  # a zip file
        return True
    except OSError:
        return False
    if folder.lower().endswith(".egg"):
        return True
    return any(_announces(os.path.join(folder, name)) for name in names if name.lower().endswith(_METADATA))


def _announces(distribution: str) -> bool:
    try:
        with open(os.path.join(distribution, "entry_points.txt"), "rb") as file:
            return GROUP.encode() in file.read()
    except OSError:
        return False
