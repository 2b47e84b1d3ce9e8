"""DFlash and what builds on it: context from target features, and a block of mask tokens filled in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from specdec.drafts.block.layers import BlockLayer, Sight, sights
from specdec.drafts.block.masks import read_mask
from specdec.drafts.block.walk import Rows, Walk
from specdec.drafts.errors import DraftError
from specdec.drafts.layers import LayerFacts, RMSNorm, Rotary
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.network import DraftNetwork
from specdec.drafts.weights import Weights

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle

_TRAINING_ONLY = ("t2d",)


class BlockDraft(DraftNetwork):
    """A block draft; subclasses say how tokens are chosen from its rows. Source: arXiv 2602.06036.

    Context: keys and values of committed positions are projections of ``features``, written once by
    ``write_context``. Block: rows [anchor, MASK, ...] at the positions behind the context; rows see the context and,
    by each layer's rule, one another. In a cache, key j stands at position j.
    """

    def __init__(self, draft: Mapping[str, Any], weights: Weights, embed: nn.Module, head: nn.Module) -> None:
        """``draft``: the checkpoint's facts; ``embed``, ``head``: the target's, used where none are stored."""
        super().__init__()
        self.draft, self.location = draft, weights.location
        size = require(draft, "hidden_size", weights)
        self.mask_token_id, self.mask_embedding = read_mask(draft, weights)
        self.anchor_first = bool(draft["sample_from_anchor"])
        self.num_layers = require(draft, "num_hidden_layers", weights)
        self.feature_size = size
        self.sights = sights(draft, self.num_layers)
        self.logit_scale = float(draft.get("logit_scale") or 1.0)
        self.softcap = draft.get("final_logit_softcapping")
        self.rotary = Rotary(draft)
        with torch.device("meta"):
            self.build(draft, weights)
            own_embed, own_head = "embed_tokens.weight" in weights, "lm_head.weight" in weights
            self.embed_tokens = nn.Embedding(*weights.shape("embed_tokens.weight")) if own_embed else embed
            self.lm_head = nn.Linear(size, weights.shape("lm_head.weight")[0], bias=False) if own_head else head
        self.embedding_scale = float(draft.get("input_embedding_scale") or 1.0)
        if own_embed and draft.get("scales_embeddings"):  # a target that scales does so in its own module
            self.embedding_scale *= size**0.5
        self.vocab_size = self.lm_head.weight.shape[0]
        width = self.embed_tokens.weight.shape[1]
        if width != size or self.lm_head.weight.shape[1] != size:
            raise DraftError(
                f"{weights.location}: the draft is {size} wide and shares matrices of width {width}; "
                "use the draft that was trained for this target"
            )

    def build(self, draft: Mapping[str, Any], weights: Weights) -> None:
        """Make the modules whose weights the checkpoint holds; called on the meta device."""
        size, eps = draft["hidden_size"], draft["rms_norm_eps"]
        if draft.get("use_aux_hidden_state", True):
            self.fc = nn.Linear(weights.shape("fc.weight")[1], size, bias="fc.bias" in weights)
        self.hidden_norm, self.norm = RMSNorm(size, eps), RMSNorm(size, eps)
        self.layers = nn.ModuleList()
        for index in range(self.num_layers):
            facts = LayerFacts.read(
                draft, weights, f"layers.{index}.", interleaved=not draft.get("is_neox_style", True)
            )
            self.layers.append(BlockLayer(facts, draft, weights, index))

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        weights = Weights(
            config.get("draft.model") or config.get("options.model"),
            revision=config.get("options.revision"),
            dtype=target.dtype,
            device=target.device,
        )
        network = cls({**config.draft, **config.options}, weights, target.embed_tokens, target.lm_head)
        network.fill(weights, target.vocab_size)
        return network.to(target.device)

    def fill(self, weights: Weights, target_size: int) -> None:
        """Read every tensor into its place. Raises ``DraftError`` for any that is missing, left over or misshapen."""
        weights.fill(self)
        weights.ignore(*_TRAINING_ONLY)
        if "d2t" in weights:
            offsets = weights.take("d2t", (self.vocab_size,))
            self.to_target = torch.arange(self.vocab_size, device=offsets.device) + offsets
            if int(self.to_target.min()) < 0 or int(self.to_target.max()) >= target_size:
                raise DraftError(f"{weights.location}: d2t leads outside the target's {target_size} ids")
        elif self.vocab_size < target_size:
            raise DraftError(
                f"{weights.location}: the head has {self.vocab_size} of the target's {target_size} ids and no d2t; "
                "use the checkpoint as it was trained"
            )
        weights.finish()

    def features(self, states: torch.Tensor) -> torch.Tensor:
        projected = self.fc(states) if hasattr(self, "fc") else states
        normed: torch.Tensor = self.hidden_norm(projected)
        return normed

    def inputs(self, token_ids: torch.Tensor, features: Any = None, first: Any = None) -> torch.Tensor:
        """Embeddings [R, B, H] of block rows; a block reads no features but through its context."""
        x: torch.Tensor = self.embed_tokens(token_ids)
        if self.mask_embedding is not None:
            x = torch.where((token_ids == self.mask_token_id)[..., None], self.mask_embedding.to(x), x)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def write_context(self, features: torch.Tensor, positions: torch.Tensor, cache: Any) -> None:
        """Keys and values of committed ``positions`` [R, W] from features [R, W, H], into every layer of the cache."""
        rotation = self.rotary(features, positions)
        for layer in self.layers:
            cache.update(*layer.self_attn.keys_values(features, rotation), layer.index)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, mask: Any = None, cache: Any = None, step: int = 0
    ) -> torch.Tensor:
        """The stream [R, B, H] of a block at ``positions`` [R, B]; its keys and values go into the cache behind the context.

        Each layer's own mask follows from the positions, so ``mask`` is not read.
        """
        rotation = self.rotary(x, positions)
        masks: dict[tuple[Sight, int], torch.Tensor | None] = {}

        def visible(sight: Sight, num_keys: int) -> torch.Tensor | None:
            if (sight, num_keys) not in masks:
                masks[sight, num_keys] = sight.mask(positions, num_keys)
            return masks[sight, num_keys]

        for layer, sight in zip(self.layers, self.sights, strict=True):
            x = layer(x, rotation, partial(visible, sight), cache)
        return x

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        return self.head(self.norm(hidden))

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocab_size] of rows [..., H] after the final norm."""
        logits: torch.Tensor = self.lm_head(hidden)
        logits = logits if self.logit_scale == 1.0 else logits * self.logit_scale
        return torch.tanh(logits / self.softcap) * self.softcap if self.softcap else logits

    def parts(self) -> DraftParts:
        """Its drafts are native too where they are the best of its logits as they are."""
        drawn = type(self).walk is BlockDraft.walk and self.logit_scale == 1.0 and not self.softcap
        return DraftParts(
            self.embed_tokens,
            self.layers,
            self.rotary,
            self.norm,
            self.lm_head,
            getattr(self, "fc", None),
            windows=[sight.window or 0 for sight in self.sights],
            both_ways=[not sight.causal for sight in self.sights],
            context_norm=self.hidden_norm,
            blank_token=self.mask_token_id,
            blank=self.mask_embedding,
            walks=drawn,
        )

    def block_ids(self, anchors: torch.Tensor, rows: int) -> torch.Tensor:
        """Token ids [R, rows] of blocks that start with these anchors [R]."""
        ids = anchors.new_full((len(anchors), rows), self.mask_token_id)
        ids[:, 0] = anchors
        return ids

    def block_rows(self, k: int) -> int:
        """Rows of a block that drafts k tokens."""
        return k if self.anchor_first else k + 1

    def sampled(self, hidden: torch.Tensor, count: int) -> torch.Tensor:
        """The rows [R, count, H] of hidden [R, B, H] that the first ``count`` drafts are chosen from."""
        start = 0 if self.anchor_first else 1
        return hidden[:, start : start + count]

    def walk(self, hidden: torch.Tensor, anchors: torch.Tensor, last: torch.Tensor, count: int) -> Walk:
        """How the first ``count`` drafts follow from a block.

        ``hidden`` [R, B, H] after the final norm, ``anchors`` [R], ``last`` [R, H]: features before the anchor.
        """
        return Rows(self.head(self.sampled(hidden, count)), self.to_target)


def require(draft: Mapping[str, Any], name: str, weights: Weights) -> Any:
    """A fact that the network cannot do without. Raises ``DraftError``."""
    if draft.get(name) is None:
        raise DraftError(f"{weights.location}: the config.json does not say {name}, which the draft needs")
    return draft[name]
