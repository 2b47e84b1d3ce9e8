"""EAGLE-3: a decoder layer over fused states of several target layers, trained on its own drafts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.drafts.eagle import EagleHead
from specdec.drafts.layers import RMSNorm
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.shared import common_window, decoder_layers
from specdec.drafts.weights import Weights
from specdec.model.handle import TargetHandle


class Eagle3Draft(EagleHead):
    """Layer 0 attends over ``[norm(embed(t[P+1])), norm(g[P])]`` and adds to the stream g. Source: arXiv 2503.01840.

    g = fc(target states) for true states; a drafted token's g is the stream that leaves the last layer. Facts of the
    checkpoint say whether states are normed before fc, whether the stream starts from the normed g, and whether the
    normed stream is fed back (EAGLE-3.1).
    """

    def __init__(self, config: SpeculativeConfig, target: TargetHandle, weights: Weights) -> None:
        super().__init__(config, target, weights)
        draft, eps = config.draft, config.draft["rms_norm_eps"]
        size = self.feature_size
        self.residual_normed, self.feedback_normed = bool(draft["norm_before_residual"]), bool(draft["norm_output"])
        self.layers = decoder_layers(
            draft, weights, {"input_size": 2 * size, "input_norm": draft["use_input_layernorm"]}
        )
        self.num_layers, self.window = len(self.layers), common_window(self.layers, weights)
        count, width = len(config.wiring["capture_before_layer"] or ()), target.hidden_size
        self.state_size = count * width if draft["use_aux_hidden_state"] else width
        with torch.device("meta"):
            self.layers[0].hidden_norm = RMSNorm(size, eps)
            self.norm = RMSNorm(size, eps) if draft["use_last_layernorm"] else nn.Identity()
            self.input_norm = RMSNorm(self.state_size, eps) if draft["norm_before_fc"] else None
            self.fc_norm = nn.ModuleList(RMSNorm(width, eps) for _ in range(count)) if draft["fc_norm"] else None
            bias = "fc.bias" in weights
            self.fc = nn.Linear(self.state_size, size, bias=bias) if draft["use_aux_hidden_state"] else None

    def features(self, states: torch.Tensor) -> torch.Tensor:
        if self.fc is None:
            return states
        states = states.to(self.fc.weight.dtype)
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            chunks = states.chunk(len(self.fc_norm), -1)
            states = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], -1)
        out: torch.Tensor = self.fc(states)
        return out

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, step: int = 0) -> torch.Tensor:
        fused, *others = self.layers
        embedded, stream = x.to(fused.hidden_norm.weight.dtype).chunk(2, -1)
        rotation = self.rotary(stream, positions)
        normed = fused.hidden_norm(stream)
        embedded = fused.input_layernorm(embedded) if fused.normed else embedded
        stream = normed if self.residual_normed else stream
        stream = fused(stream, rotation, mask, cache, attends=torch.cat((embedded, normed), -1))
        for layer in others:
            stream = layer(stream, rotation, mask, cache)
        return stream

    def feedback(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        fed: torch.Tensor = self.norm(hidden) if self.feedback_normed else hidden
        return fed

    def parts(self) -> DraftParts:
        fused: Any = self.layers[0]
        return self.body(
            fc=self.fc,
            state_norms=[self.input_norm] if self.input_norm is not None else list(self.fc_norm or ()),
            embed_norm=fused.input_layernorm if fused.normed else None,
            feature_norm=fused.hidden_norm,
            beside=True,
            normed_residual=self.residual_normed,
            normed_feedback=self.feedback_normed,
        )
