"""A finalized configuration as a user's file again: canonical names, resolved values, ready to be resolved to the same value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.config.final.speculative_config import SpeculativeConfig


def dump(config: SpeculativeConfig) -> dict[str, Any]:
    """Plain data in the order of a file; ``specdec.resolve(dump(config), ...)`` with the same checkpoints gives ``config``."""
    return {name: thaw(value) for name, value in config.source.items()}


def dump_yaml(config: SpeculativeConfig) -> str:
    """``dump`` as YAML text."""
    import yaml

    return yaml.safe_dump(dump(config), sort_keys=False, allow_unicode=True)


def thaw(value: Any) -> Any:
    """Plain dicts and lists, nothing shared with the value."""
    if isinstance(value, Mapping):
        return {k: thaw(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(v) for v in value]
    return value
