"""The same configuration for another engine: ``export(config, "vllm")``.

Enters: a finalized configuration. Leaves: flags or settings of that engine, and a finding for what it cannot do.
What each engine can do stands in the records and in ``flags.yaml``.
"""

from __future__ import annotations

from importlib import import_module

from specdec.config.export.common import Exported
from specdec.config.export.tables import tables
from specdec.config.final.speculative_config import SpeculativeConfig

__all__ = ["Exported", "engines", "export"]


def engines() -> list[str]:
    """Engines that a configuration can be written for."""
    return list(tables())


def export(config: SpeculativeConfig, engine: str, version: str | None = None) -> Exported:
    """Flags and settings for ``engine``; raises ``KeyError`` for an engine without a table."""
    if engine not in tables():
        raise KeyError(engine)
    exporter = import_module(f"specdec.config.export.{engine}")
    result: Exported = exporter.export(config, version)
    return result
