"""A draft network with every way in which an autoregressive family makes its rows."""

from __future__ import annotations

import torch
from torch import nn

from specdec.drafts.layers import DecoderLayer, LayerFacts, RMSNorm, Rotary
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.network import DraftNetwork

VOCAB, ROWS, H = 97, 53, 64
KINDS = ("beside", "beside normed", "joined", "joined hidden first", "two layers")


class Toy(DraftNetwork):
    """Every way in which an autoregressive family makes its rows, by switches."""

    def __init__(self, kind: str, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.kind, self.beside = kind, not kind.startswith("joined")
        self.num_layers, self.vocab_size, self.feature_size = 1 + (kind == "two layers"), ROWS, H
        wide = 2 * H if self.beside else H
        facts = LayerFacts(H, wide, 96, 4, 2, 32, 1e-5, qk_norm=kind == "two layers", input_norm=kind != "joined")
        behind = LayerFacts(H, H, 96, 4, 2, 32, 1e-5, qk_norm=True)
        self.layers = nn.ModuleList(DecoderLayer(behind if i else facts, i) for i in range(self.num_layers))
        names = {"hidden_size": H, "num_attention_heads": 4, "head_dim": 32, "rope_theta": 1e4}
        self.embed, self.rotary = nn.Embedding(VOCAB, H), Rotary(names)
        self.fc, self.norm, self.head = nn.Linear(3 * H, H), RMSNorm(H, 1e-5), nn.Linear(H, ROWS, bias=False)
        self.embed_norm, self.feature_norm, self.join = RMSNorm(H, 1e-5), RMSNorm(H, 1e-6), nn.Linear(2 * H, H)
        self.state_norms = (
            nn.ModuleList(RMSNorm(H, 1e-5) for _ in range(3)) if kind == "two layers" else nn.ModuleList()
        )
        for parameter in self.parameters():
            parameter.data = (torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1)).to(dtype)
        self.requires_grad_(False)
        self.to_target = torch.arange(ROWS) + torch.arange(ROWS) // 2

    @property
    def normed(self) -> bool:
        return self.kind in ("beside normed", "joined hidden first")

    def features(self, states: torch.Tensor) -> torch.Tensor:
        if len(self.state_norms):
            chunks = states.chunk(3, -1)
            states = torch.cat([norm(c) for norm, c in zip(self.state_norms, chunks, strict=True)], -1)
        return self.fc(states)

    def inputs(self, token_ids, features, first):
        e = self.embed(token_ids)
        return torch.cat([e.masked_fill(first[..., None], 0) if self.kind == "joined" else e, features], -1)

    def forward(self, x, positions, mask, cache, step=0):
        rotation = self.rotary(x, positions)
        e, g = x.chunk(2, -1)
        if self.beside:
            attends = torch.cat([self.embed_norm(e), self.feature_norm(g)], -1)
            x = self.feature_norm(g) if self.kind == "beside normed" else g
            x = self.layers[0](x, rotation, mask, cache, attends)
        elif self.kind == "joined":
            x = self.layers[0](self.join(torch.cat([e, g], -1)), rotation, mask, cache)
        else:
            both = torch.cat([self.feature_norm(g), self.embed_norm(e)], -1)
            x = self.layers[0](self.join(both), rotation, mask, cache)
        for layer in self.layers[1:]:
            x = layer(x, rotation, mask, cache)
        return x

    def logits(self, hidden, step=0):
        return self.head(hidden if self.kind == "joined" else self.norm(hidden))

    def feedback(self, hidden, step=0):
        return self.norm(hidden) if self.normed else hidden

    def parts(self) -> DraftParts:
        bare = self.kind == "joined"
        return DraftParts(
            self.embed, list(self.layers), self.rotary, None if bare else self.norm, self.head, self.fc,
            tuple(self.state_norms), None if bare else self.embed_norm, None if bare else self.feature_norm,
            None if self.beside else self.join, self.beside, self.kind == "joined hidden first",
            self.kind == "beside normed", self.normed, first_empty=bare,
        )  # fmt: skip
