"""What a draft checkpoint may take from the target: embedding and head; and how its token ids map to the target's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from specdec.config.checkpoint.checks.vocab import map_fault
from specdec.config.checkpoint.facts.tensor_names import layer_count
from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.errors import DraftError
from specdec.drafts.layers import DecoderLayer, LayerFacts
from specdec.drafts.weights import Weights
from specdec.model.handle import TargetHandle

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
_SLIDING = "sliding_attention"


def open_draft(config: SpeculativeConfig, target: TargetHandle) -> Weights:
    """The tensors of ``config.draft.model``, in the draft's dtype or else the target's. Raises ``DraftError``."""
    chosen = config.get("draft.dtype")
    dtype = target.dtype if chosen in (None, "auto") else getattr(torch, chosen)
    model = config.get("draft.model") or config.get("options.model")
    return Weights(str(model), revision=config.get("draft.revision"), dtype=dtype, device=target.device)


def decoder_layers(draft: Mapping[str, Any], weights: Weights, first: Mapping[str, Any]) -> nn.ModuleList:
    """All layers that are stored, on the meta device; ``first`` are facts of layer 0 that differ."""
    count = layer_count({name: () for name in weights})
    if not count:
        raise DraftError(f"{weights.location} stores no decoder layer (no tensor is named layers.0.* or midlayer.*)")
    kinds, layers = draft.get("layer_types") or (), []
    for i in range(count):
        prefix = f"layers.{i}."
        window = draft.get("sliding_window") if i < len(kinds) and kinds[i] == _SLIDING else None
        facts = LayerFacts.read(draft, weights, prefix, window=window, **(first if i == 0 else {}))
        with torch.device("meta"):
            layers.append(DecoderLayer(facts, i))
        weights.ignore(f"{prefix}self_attn.rotary_emb.inv_freq")
    return nn.ModuleList(layers)


def common_window(layers: nn.ModuleList, weights: Weights) -> int | None:
    """Positions that every layer sees, itself included; None = all. Raises ``DraftError`` where layers differ."""
    windows = {layer.self_attn.facts.window for layer in layers}  # type: ignore[union-attr]
    if len(windows) > 1:
        raise DraftError(f"{weights.location}: layer_types names sliding and full layers; a head must have one kind")
    return windows.pop()


def embedding(weights: Weights, target: TargetHandle, hidden_size: int) -> nn.Embedding:
    """The draft's own embedding if it is stored and another than the target's, else the target's values.

    A scale that the target's embedding module applies is not the draft's, so only the values are shared.
    """
    theirs: Any = target.embed_tokens.weight
    if EMBEDDING not in weights:
        if theirs.shape[1] != hidden_size:
            raise DraftError(
                f"{weights.location} has no {EMBEDDING}; the target's is {theirs.shape[1]} wide, the draft {hidden_size}"
            )
        return _embedding(theirs)
    ours = weights.take(EMBEDDING, (weights.shape(EMBEDDING)[0], hidden_size))
    if ours.shape[0] < target.vocab_size:
        raise DraftError(
            f"{weights.location}: tensor {EMBEDDING} has {ours.shape[0]} rows, but the target's ids go up to {target.vocab_size - 1}"
        )
    same = ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    return _embedding(theirs if same else nn.Parameter(ours, requires_grad=False))


def _embedding(weight: nn.Parameter) -> nn.Embedding:
    module = nn.Embedding(weight.shape[0], weight.shape[1], device="meta")
    module.weight = weight
    return module


def lm_head(weights: Weights, target: TargetHandle, hidden_size: int) -> nn.Linear:
    """The draft's own head if it is stored, else the target's module."""
    if HEAD not in weights:
        theirs: Any = target.lm_head
        width = theirs.weight.shape[1]
        if width != hidden_size:
            raise DraftError(
                f"{weights.location} has no {HEAD}; the target's reads {width}, the draft gives {hidden_size}"
            )
        return theirs  # type: ignore[no-any-return]
    rows = weights.shape(HEAD)[0]
    bias = "lm_head.bias" in weights
    with torch.device("meta"):
        head = nn.Linear(hidden_size, rows, bias=bias)
    weights.fill(head, "lm_head.")
    return head


def vocabulary_map(weights: Weights, rows: int, vocab_size: int) -> torch.Tensor | None:
    """Target id [rows] of each row of the head, from the offsets ``d2t``; None when all ids are the same.

    Raises ``DraftError`` for a map that is missing, too short, out of range, or holds target ids instead of offsets.
    """
    members = weights.take("t2d").flatten().tolist() if "t2d" in weights else None
    if "d2t" not in weights:
        if rows != vocab_size:
            raise DraftError(
                f"{weights.location} has no tensor d2t, so the {rows} rows of its head stand for no known ids of the "
                f"target's {vocab_size}"
            )
        return None
    offsets = weights.take("d2t", (rows,)).long()
    fault = map_fault(offsets.tolist(), members, vocab_size)
    if fault is not None:
        raise DraftError(f"{weights.location}: {fault[1]}; {fault[2]}")
    return None if rows == vocab_size else torch.arange(rows, device=offsets.device) + offsets
