"""The records a verb works with: built in, installed packages' and files'."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def registry_with(files: Iterable[str], verb: str) -> Any | None:
    """All records, and those of ``files``; None after a message when a file's records are refused."""
    from specdec.config.read.source import SourceError
    from specdec.config.records.extends import RecordError
    from specdec.config.records.registry import installed_problems
    from specdec.config.schema.checker import all_records

    registry = all_records()
    for problem in installed_problems():
        print(f"specdec {verb}: warning: {problem.source}: {problem.message}", file=sys.stderr)
    for file in files:
        try:
            registry = registry.with_file(file)
        except (RecordError, SourceError) as error:
            print(f"specdec {verb}: error: {error}", file=sys.stderr)
            return None
    return registry
