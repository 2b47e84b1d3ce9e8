"""Multi-token-prediction modules: one decoder layer of the target's own class behind a projection of token and state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from specdec.drafts.errors import DraftError
from specdec.drafts.mtp_weights import fill_modules
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.network import DraftNetwork
from specdec.model.capture import decoder_layers

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle

WIRING = ("mtp_input_order", "mtp_feedback", "mtp_zero_first_embedding", "mtp_own_lm_head")


class MTPModule(nn.Module):
    """The weights of one module; ``norm`` and ``head`` are None where a family has none of its own."""

    def __init__(self, target: Any, config: Any, index: int, facts: Mapping[str, Any]) -> None:
        super().__init__()
        width = config.hidden_size
        final_norm, head = target.get_decoder().norm, target.get_output_embeddings()
        self.embed_norm, self.hidden_norm = copy.deepcopy(final_norm), copy.deepcopy(final_norm)
        self.input_proj = nn.Linear(2 * width, width, bias=False)
        self.layer = type(decoder_layers(target)[-1])(config, index)
        self.norm = None if facts["mtp_feedback"] == "block_output" else copy.deepcopy(final_norm)
        self.head = nn.Linear(width, head.out_features, bias=False) if facts["mtp_own_lm_head"] else None
        for part in self.layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = 0  # the cache decides which layer this is


class MTPDraft(DraftNetwork):
    """One module of a target, used for every drafted token. Source: arXiv 2412.19437, section 2.2.

    The order of the projection's inputs, what is fed back, and whether the embedding of the first pair is zeroed are
    facts of the target's record. A feature is the target's state after its final norm.
    """

    def __init__(self, config: SpeculativeConfig, target: TargetHandle) -> None:
        super().__init__()
        facts = config.draft
        missing = [name for name in WIRING if name not in facts]
        if missing:
            raise DraftError(
                f"specdec does not know how the MTP layers of {config.get('target.model_type') or 'this target'} are "
                f"wired ({', '.join(missing)}); a record under targets: in a records file can say so"
            )
        self.hidden_first = facts["mtp_input_order"] == "hidden_first"
        self.feedback_normed = facts["mtp_feedback"] == "after_norm"
        self.zero_first = bool(facts["mtp_zero_first_embedding"])
        self.step_to_layer = tuple(config.wiring["step_to_layer"])
        self.num_layers = 1
        self.feature_size, self.vocab_size = target.hidden_size, target.vocab_size
        decoder = target.model.get_decoder()
        layer_config = mtp_layer_config(target.model, facts.get("mtp_layer") or {}, max(self.step_to_layer) + 1)
        self.additive = layer_config._attn_implementation == "eager"
        self.layer_kind = (getattr(layer_config, "layer_types", None) or (None,))[0]
        sliding = self.layer_kind is not None and "sliding" in self.layer_kind
        self.window = layer_config.sliding_window if sliding else None
        with torch.device("meta"):
            modules = [MTPModule(target.model, layer_config, i, facts) for i in range(layer_config.num_hidden_layers)]
        self.mtp = nn.ModuleList(modules)
        # the target's own, not part of this network's weights
        self.shared: dict[str, Any] = {"embed": target.embed_tokens, "head": target.lm_head}
        self.rotary = [getattr(decoder, "rotary_emb", None)]
        self.rotary_takes_kind = self.rotary[0] is not None and (
            "layer_type" in inspect.signature(self.rotary[0].forward).parameters
        )

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        network = cls(config, target)
        fill_modules(network.mtp, config, target)
        return network.eval()

    def inputs(
        self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor, step: int = 0
    ) -> torch.Tensor:
        module = self.module(step)
        embeds = self.shared["embed"](token_ids).to(features.dtype)
        if self.zero_first:
            embeds = embeds.masked_fill(first[..., None], 0.0)
        pair = (module.embed_norm(embeds), module.hidden_norm(features))
        return module.input_proj(torch.cat(pair[::-1] if self.hidden_first else pair, dim=-1))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, step: int = 0) -> torch.Tensor:
        rotary, kind = self.rotary[0], {"layer_type": self.layer_kind} if self.rotary_takes_kind else {}
        output = self.module(step).layer(
            x,
            attention_mask=self.attention_mask(x, mask),
            position_ids=positions,
            past_key_values=None if cache is None else CacheLayer(cache, self.cache_layer(step)),
            position_embeddings=None if rotary is None else rotary(x, positions, **kind),
        )
        return output[0] if isinstance(output, tuple) else output

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        module = self.module(step)
        normed = hidden if module.norm is None else module.norm(hidden)
        return (self.shared["head"] if module.head is None else module.head)(normed)

    def feedback(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        return self.module(step).norm(hidden) if self.feedback_normed else hidden

    def parts(self) -> DraftParts | None:
        """Of the one module that drafts every token; what is no plain decoder layer fails the comparison."""
        if self.num_layers != 1 or len(set(self.step_to_layer)) != 1 or self.rotary[0] is None:
            return None
        module = self.module(0)
        return DraftParts(
            self.shared["embed"],
            [module.layer],
            self.rotary[0],
            module.norm,
            self.shared["head"] if module.head is None else module.head,
            embed_norm=module.embed_norm,
            feature_norm=module.hidden_norm,
            join=module.input_proj,
            feature_first=self.hidden_first,
            normed_feedback=self.feedback_normed,
            first_empty=self.zero_first,
            windows=[self.window or 0],
        )

    def module(self, step: int) -> Any:
        """The module that drafts token number ``step``, by the finalized configuration; later ones start over."""
        return self.mtp[self.step_to_layer[step % len(self.step_to_layer)]]

    def cache_layer(self, step: int) -> int:
        """The layer of the draft's cache that a step reads and writes."""
        return 0

    def attention_mask(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """A mask as the layer's attention takes it: boolean, or added to the scores."""
        if mask is None:
            width = x.shape[1]
            mask = torch.ones(width, width, dtype=torch.bool, device=x.device).tril_()[None, None]
            if self.window is not None:
                mask = mask & mask.new_ones(width, width).triu_(1 - self.window)
        if not self.additive or mask.dtype != torch.bool:
            return mask
        return torch.zeros_like(mask, dtype=x.dtype).masked_fill_(~mask, torch.finfo(x.dtype).min)


class CacheLayer:
    """One layer of a transformers cache for a layer that believes to be the first."""

    def __init__(self, cache: Any, index: int) -> None:
        self.cache, self.index = cache, index

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Stores keys and values and returns all that are visible."""
        return self.cache.update(keys, values, self.index, *args, **kwargs)


def mtp_layer_config(target: Any, changes: Mapping[str, Any], num_modules: int) -> Any:
    """The target's text configuration as its MTP layers see it: ``changes`` of keys that it has, layers counted from 0.

    A list is repeated for every module.
    """
    config = copy.deepcopy(target.config.get_text_config(decoder=True))
    config.num_hidden_layers = num_modules
    for key, value in changes.items():
        if hasattr(config, key):
            setattr(config, key, list(value) * num_modules if isinstance(value, (list, tuple)) else value)
    return config
