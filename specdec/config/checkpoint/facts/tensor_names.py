"""One spelling for tensor names, and what the names of a checkpoint say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specdec.config.checkpoint.files.value import Checkpoint, Shape

# Prefixes that wrappers add, and names that some trainers give to what others call differently.
_RENAMES = (
    (re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|model\.)"), ""),
    (re.compile(r"^midlayer\."), "layers.0."),
    (re.compile(r"^eagle_linear\."), "fc."),
    (re.compile(r"^encoder\.fc\."), "fc."),  # Muse Glimmer
    (re.compile(r"^encoder\.output_norm_enc\."), "hidden_norm."),
    (re.compile(r"^markov_(w[12])\."), r"markov_head.markov_\1."),  # Model-Optimizer
    (re.compile(r"^confidence_proj\."), "confidence_head.proj."),
    (re.compile(r"^refiner_head\.token_embed\."), "xpress_head.w1."),  # the speculators library
    (re.compile(r"^refiner_head\.readout\."), "xpress_head.w2."),
    (re.compile(r"^refiner_head\.mix_l$"), "xpress_head.mix.L"),
    (re.compile(r"^refiner_head\.mlp_(gate|up|down)\."), r"xpress_head.mlp.\1_proj."),
    (re.compile(r"^refiner_head\."), "xpress_head."),
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
