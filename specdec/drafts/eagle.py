"""EAGLE-1 and EAGLE-2: a decoder layer that predicts the target's next feature from the current one and a token."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import nn

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.layers import RMSNorm, Rotary
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.network import DraftNetwork
from specdec.drafts.shared import common_window, decoder_layers, embedding, lm_head, open_draft, vocabulary_map
from specdec.drafts.weights import Weights
from specdec.model.handle import TargetHandle


class EagleHead(DraftNetwork):
    """What heads of all generations share: the pair of embedding and feature that enters, and how they are loaded."""

    embed_tokens: nn.Embedding
    layers: nn.ModuleList
    norm: nn.Module
    lm_head: nn.Linear
    rotary: Rotary

    def __init__(self, config: SpeculativeConfig, target: TargetHandle, weights: Weights) -> None:
        super().__init__()
        size = self.feature_size = config.draft["hidden_size"]
        self.embed_tokens = embedding(weights, target, size)
        self.lm_head = lm_head(weights, target, size)
        self.rotary = Rotary(config.draft)
        self.vocab_size = self.lm_head.weight.shape[0]
        self.to_target = vocabulary_map(weights, self.vocab_size, target.vocab_size)

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        weights = open_draft(config, target)
        network = cls(config, target, weights)
        weights.fill(network)
        weights.finish()
        network.rotary.to(target.device)
        return network.eval()

    def inputs(self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return torch.cat((F.embedding(token_ids, self.embed_tokens.weight).to(features.dtype), features), -1)

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        out: torch.Tensor = self.lm_head(self.norm(hidden).to(self.lm_head.weight.dtype))
        return out

    def body(self, **entry: Any) -> DraftParts:
        """The parts that all heads have; ``entry``: how a pair enters the layers."""
        norm = None if isinstance(self.norm, nn.Identity) else self.norm
        windows = [layer.self_attn.facts.window or 0 for layer in self.layers]
        return DraftParts(self.embed_tokens, self.layers, self.rotary, norm, self.lm_head, windows=windows, **entry)


class EagleDraft(EagleHead):
    """``layers(fc([embed(t[P+1]), f[P]]))``, f being the target's state after its final norm. Source: arXiv 2401.15077.

    The tensors decide what differs between heads: a bias of fc, a first input norm, a final norm. Without a final norm
    the stream itself is the next feature; with one (Mistral heads) the normed stream is.
    """

    def __init__(self, config: SpeculativeConfig, target: TargetHandle, weights: Weights) -> None:
        super().__init__(config, target, weights)
        size, first = self.feature_size, {"input_norm": "layers.0.input_layernorm.weight" in weights}
        self.layers = decoder_layers(config.draft, weights, first)
        self.num_layers, self.window = len(self.layers), common_window(self.layers, weights)
        with torch.device("meta"):
            self.fc = nn.Linear(size + target.hidden_size, size, bias="fc.bias" in weights)
            self.norm = RMSNorm(size, config.draft["rms_norm_eps"]) if "norm.weight" in weights else nn.Identity()

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, step: int = 0) -> torch.Tensor:
        stream: torch.Tensor = self.fc(x.to(self.fc.weight.dtype))
        rotation = self.rotary(stream, positions)
        for layer in self.layers:
            stream = layer(stream, rotation, mask, cache)
        return stream

    def feedback(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        fed: torch.Tensor = self.norm(hidden)
        return fed

    def parts(self) -> DraftParts:
        return self.body(join=self.fc, normed_feedback=True)
