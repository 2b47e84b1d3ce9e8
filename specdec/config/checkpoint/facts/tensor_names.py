"""One spelling for tensor names, and what the names of a checkpoint say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specdec.config.checkpoint.files.value import Checkpoint, Shape

# Prefixes that wrappers add, and the name some trainers give to a head's first layer.
_RENAMES = (
    (re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|model\.)"), ""),
    (re.compile(r"^midlayer\."), "layers.0."),
)
_LAYER = re.compile(r"^layers\.(\d+)\.")


def normalised_name(name: str) -> str:
    """``model.layers.0.x`` and ``midlayer.x`` as ``layers.0.x``."""
    for pattern, replacement in _RENAMES:
        name = pattern.sub(replacement, name)
    return name


def normalised_shapes(checkpoint: Checkpoint) -> dict[str, Shape] | None:
    """Normalised tensor name -> shape; None when the checkpoint's tensors are not known."""
    if checkpoint.tensors is None:
        return None
    return {normalised_name(name): shape for name, shape in checkpoint.tensors.items()}


def layer_count(shapes: Mapping[str, Shape]) -> int:
    """One more than the highest ``layers.{i}``; 0 when there are none."""
    return max((int(m[1]) for m in map(_LAYER.match, shapes) if m), default=-1) + 1
