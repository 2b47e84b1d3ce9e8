"""One spelling for tensor names, and what the names of a checkpoint say."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from specdec.config.checkpoint.files.value import Checkpoint, Shape

_WRAPPERS = ("model.language_model.", "language_model.model.", "language_model.", "model.")
# names that some trainers give to what others call differently
_RENAMES = (
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
_LATEST: deque[tuple[Mapping[str, Shape], dict[str, Shape]]] = deque(maxlen=4)  # every rule asks again for these
_LAYER = re.compile(r"^layers\.(\d+)\.")


def normalised_name(name: str) -> str:
    """``model.layers.0.x`` and ``midlayer.x`` as ``layers.0.x``."""
    wrapper = next((prefix for prefix in _WRAPPERS if name.startswith(prefix)), "")
    name = name[len(wrapper) :]
    if name.startswith("layers."):  # nearly all names of a large checkpoint, and none of the others
        return name
    for pattern, replacement in _RENAMES:
        name = pattern.sub(replacement, name)
    return name


def normalised_shapes(checkpoint: Checkpoint) -> dict[str, Shape] | None:
    """Normalised tensor name -> shape; None when the checkpoint's tensors are not known."""
    tensors = checkpoint.tensors
    if tensors is None:
        return None
    held = next((shapes for known, shapes in _LATEST if known is tensors), None)
    if held is None:
        held = {normalised_name(name): shape for name, shape in tensors.items()}
        _LATEST.append((tensors, held))
    return held


def layer_count(shapes: Mapping[str, Shape]) -> int:
    """One more than the highest ``layers.{i}``; 0 when there are none."""
    return max((int(m[1]) for m in map(_LAYER.match, shapes) if m), default=-1) + 1
