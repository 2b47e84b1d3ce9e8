"""Nodes of OmegaConf, which Hydra applications hold, as plain data. OmegaConf itself is never imported here."""

from __future__ import annotations

import sys
from typing import Any

GROUP = "speculative"
MISSING = "???"  # a value that must be given; here an absent one


def is_node(value: Any) -> bool:
    """Whether a value is a ``DictConfig`` or a ``ListConfig``; nobody has one without the package."""
    package = sys.modules.get("omegaconf")
    return package is not None and isinstance(value, (package.DictConfig, package.ListConfig))


def container(node: Any) -> tuple[Any, str | None]:
    """Dicts, lists and scalars with interpolations resolved, or None and why they cannot be.

    A node that stands under ``speculative`` in its configuration comes back as a configuration with that block.
    """
    package = sys.modules["omegaconf"]
    try:
        data = _without_missing(package.OmegaConf.to_container(node, resolve=True, throw_on_missing=False))
        key = str(node._key()) if node._get_parent() is not None else ""
    except Exception as error:  # an interpolation to nowhere, a resolver that raises
        return None, (str(error) or type(error).__name__).splitlines()[0]
    return ({GROUP: data} if key == GROUP else data), None


def _without_missing(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_missing(v) for k, v in value.items() if v != MISSING}
    return [_without_missing(v) for v in value] if isinstance(value, list) else value
