"""One number that is equal exactly when two finalized configurations would run the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Where a checkpoint lies does not change what runs; its facts do.
_LOCATIONS = {"draft": ("model",), "target": ("model", "tokenizer")}


def digest(parts: Mapping[str, Any]) -> str:
    """SHA-256 of the parts as canonical JSON, the locations of checkpoints left out; 64 hexadecimal digits."""
    kept = {
        name: {k: v for k, v in value.items() if k not in _LOCATIONS.get(name, ())}
        if isinstance(value, Mapping)
        else value
        for name, value in parts.items()
    }
    text = json.dumps(canonical(kept), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Dicts, lists and scalars only; 2.0 and 2 are the same number."""
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
