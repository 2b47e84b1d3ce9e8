"""Facts that every checkpoint has: what it calls itself, which keys it writes and which tensors it holds."""

from __future__ import annotations

from typing import Any

from specdec.config.checkpoint.facts import in_speculators_format
from specdec.config.checkpoint.keys import lookup, written_keys
from specdec.config.checkpoint.tensors import normalised_shapes
from specdec.config.checkpoint.value import Checkpoint

# name -> type, as FactSpec.type; expressions of records may use them as draft.<name>
IDENTITY_TYPES = {
    "architectures": "list<string>",
    "model_type": "string",
    "speculators_model_type": "string",
    "speculators_format": "boolean",
    "keys": "list<string>",
    "has_tensors": "boolean",
    "tensor_names": "list<string>",
    "file_format": "string",
}


def identity_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Always complete: an absent string is empty, an absent list has no entries. Tensor names are normalised."""
    speculators_type = lookup(checkpoint.config, "speculators_model_type")
    shapes = normalised_shapes(checkpoint)
    return {
        "architectures": list(checkpoint.architectures),
        "model_type": checkpoint.model_type,
        "speculators_model_type": speculators_type if isinstance(speculators_type, str) else "",
        "speculators_format": in_speculators_format(checkpoint),
        "keys": [*written_keys(checkpoint.config), *checkpoint.inline],
        "has_tensors": shapes is not None,
        "tensor_names": list(shapes or ()),
        "file_format": checkpoint.file_format,
    }
