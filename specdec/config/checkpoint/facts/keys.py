"""Looks values up in a config by dotted key, also inside the sub-configs that wrappers use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Sub-configs that hold the language model's own keys: speculators format, multimodal models, vLLM's eagle wrapping.
WRAPPERS = ("transformer_layer_config", "text_config", "model", "llm_config", "language_config")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[(\w+)=([^\]]+)\]")


def lookup(config: Any, key: str) -> Any:
    """The value at ``key``; None when absent, null, or below something that is no container.

    ``a.b[0].c`` steps into a list; ``a[kind=b.c].d`` into its first item whose ``kind`` is the value at ``b.c``.
    """
    value = config
    for name, index, field, wanted in _STEP.findall(key):
        if field:
            kind = lookup(config, wanted)
            items = value if isinstance(value, (list, tuple)) and kind is not None else ()
            value = next((item for item in items if isinstance(item, Mapping) and item.get(field) == kind), None)
        elif index:
            value = value[int(index)] if isinstance(value, (list, tuple)) and int(index) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            return None
    return value


def find(config: Mapping[str, Any], key: str) -> tuple[str, Any] | None:
    """The key as written, with its wrapper, and its value: the top level first, then each wrapper."""
    value = lookup(config, key)
    if value is not None:
        return key, value
    for wrapper in WRAPPERS:
        if isinstance(config.get(wrapper), Mapping):
            value = lookup(config[wrapper], key)
            if value is not None:
                return f"{wrapper}.{key}", value
    return None


def written_keys(config: Mapping[str, Any], depth: int = 2) -> Iterator[str]:
    """Every dotted key with a value, down to ``depth`` levels."""
    for key, value in config.items():
        if value is None:
            continue
        yield str(key)
        if depth > 1 and isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in written_keys(value, depth - 1))


def assign(config: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key, creating maps on the way."""
    *parents, last = key.split(".")
    for name in parents:
        child = config.get(name)
        if not isinstance(child, dict):
            child = config[name] = {}
        config = child
    config[last] = value
