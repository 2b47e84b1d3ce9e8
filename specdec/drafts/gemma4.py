"""The assistant of a Gemma 4 target: a few layers of queries over the target's keys and values, and none of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import nn

from specdec.drafts.errors import DraftError
from specdec.drafts.layers import MLP, LayerFacts, RMSNorm, Rotation, rotate
from specdec.drafts.network import DraftNetwork
from specdec.drafts.weights import Weights

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle

KeysValues = tuple[torch.Tensor, torch.Tensor]  # each [R, kv_heads, KV, head_dim]


class QueryLayer(nn.Module):
    """Attention that projects queries only, with norms on both sides of it and of the MLP, and a scalar at the end."""

    def __init__(self, facts: LayerFacts, kind: str) -> None:
        super().__init__()
        width, eps, head_dim = facts.hidden_size, facts.rms_norm_eps, facts.head_dim
        self.kind, self.num_heads, self.head_dim = kind, facts.num_heads, head_dim
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(width, self.num_heads * head_dim, bias=False),
                "q_norm": RMSNorm(head_dim, eps),
                "o_proj": nn.Linear(self.num_heads * head_dim, width, bias=False),
            }
        )
        self.mlp = MLP(facts)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width, eps), RMSNorm(width, eps)
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = RMSNorm(width, eps), RMSNorm(width, eps)
        self.layer_scalar = nn.Parameter(torch.empty(1))

    def forward(self, x: torch.Tensor, rotation: Rotation, held: KeysValues, mask: torch.Tensor) -> torch.Tensor:
        """[R, W, H] -> [R, W, H]; scores are not scaled, the query norm's weight does it."""
        attention = self.self_attn
        queries = attention["q_proj"](self.input_layernorm(x)).unflatten(-1, (self.num_heads, self.head_dim))
        queries = rotate(attention["q_norm"](queries).transpose(1, 2), rotation)
        keys, values = (part.to(x.dtype) for part in held)
        grouped = keys.shape[1] != self.num_heads
        seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0, enable_gqa=grouped)
        x = x + self.post_attention_layernorm(attention["o_proj"](seen.transpose(1, 2).flatten(2)))
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x * self.layer_scalar


class OrderedHead(nn.Module):
    """Scores the tokens of the nearest centroids only; all others are impossible."""

    def __init__(self, hidden_size: int, vocab_size: int, num_centroids: int, top_k: int) -> None:
        super().__init__()
        self.centroids = nn.Linear(hidden_size, num_centroids, bias=False)
        self.token_ordering = nn.Parameter(torch.empty(vocab_size, dtype=torch.int64), requires_grad=False)
        self.top_k = top_k

    def forward(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Logits [n, V] of rows [n, H] with the rows of ``weight`` [V, H]; -inf outside the candidates."""
        nearest = self.centroids(hidden).topk(self.top_k, dim=-1).indices
        candidates = self.token_ordering.view(self.centroids.out_features, -1)[nearest].flatten(1)  # [n, candidates]
        scores = torch.einsum("nh,nch->nc", hidden, weight[candidates])
        logits = scores.new_full((len(hidden), len(weight)), float("-inf"))
        return logits.scatter_(1, candidates, scores)


class Gemma4Draft(DraftNetwork):
    """Four query-only layers between two projections. Source: the Gemma4Assistant classes of transformers.

    The cache of ``forward`` maps a kind of layer to the target's keys and values of its last layer of that kind that
    has its own, and the mask to what is visible there. A feature is the target's state after its final norm.
    """

    num_layers = 0

    def __init__(self, config: SpeculativeConfig, target: TargetHandle, weights: Weights) -> None:
        super().__init__()
        facts, decoder = config.draft, target.model.get_decoder()
        act = facts["hidden_activation"]

        def layer(index: int, kind: str) -> QueryLayer:
            prefix = f"layers.{index}."
            size = weights.shape(f"{prefix}self_attn.q_norm.weight")[0]
            return QueryLayer(LayerFacts.read(facts, weights, prefix, head_dim=size, hidden_act=act), kind)

        self.feature_size, self.vocab_size = target.hidden_size, facts["vocab_size"]
        self.kv_layers = kv_layers(config, target)
        self.shared: dict[str, Any] = {"embed": target.embed_tokens, "rotary": decoder.rotary_emb}
        with torch.device("meta"):
            self.layers = nn.ModuleList(layer(i, kind) for i, kind in enumerate(facts["layer_types"]))
            self.norm = RMSNorm(facts["hidden_size"], facts["rms_norm_eps"])
            self.pre_projection = nn.Linear(2 * self.feature_size, facts["hidden_size"], bias=False)
            self.post_projection = nn.Linear(facts["hidden_size"], self.feature_size, bias=False)
            self.lm_head = nn.Linear(facts["hidden_size"], self.vocab_size, bias=False)
            ordered = (facts["hidden_size"], self.vocab_size, facts["num_centroids"], facts["centroid_top_k"])
            self.masked_embedding = OrderedHead(*ordered) if facts["use_ordered_embeddings"] else None

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        where = {"revision": config.get("draft.revision"), "dtype": target.dtype, "device": target.device}
        weights = Weights(config.draft["model"], **where)
        check_rotation(config, target)
        network = cls(config, target, weights)
        own_embedding = "embed_tokens.weight"
        if "lm_head.weight" not in weights:  # tied to the assistant's own embedding, which nothing else reads
            head = weights.take(own_embedding, network.lm_head.weight.shape)
            network.lm_head.weight = nn.Parameter(head, requires_grad=False)
        weights.fill(network)
        weights.ignore(own_embedding)
        weights.finish()
        return network.eval()

    def inputs(self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return self.pre_projection(torch.cat([self.shared["embed"](token_ids).to(features.dtype), features], dim=-1))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: Any, cache: Any, step: int = 0) -> torch.Tensor:
        rotations = {kind: self.shared["rotary"](x, positions, kind) for kind in self.kv_layers}
        for layer in self.layers:
            x = layer(x, rotations[layer.kind], cache[layer.kind], mask[layer.kind])
        return x

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        normed = self.norm(hidden)
        if self.masked_embedding is None:
            return self.lm_head(normed)
        return self.masked_embedding(normed, self.lm_head.weight)

    def feedback(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        return self.post_projection(self.norm(hidden))


def kv_layers(config: SpeculativeConfig, target: TargetHandle) -> dict[str, int]:
    """Kind of layer -> the layer of the target whose keys and values it reads. Raises ``DraftError`` if there is none."""
    layers = config.wiring.get("target_kv_layers")
    if layers is None:
        raise DraftError(
            "the target's config.json names no layers (layer_types) of the kinds that the assistant reads and that have "
            "keys and values of their own; use the assistant and the config.json that belong to this target"
        )
    kinds = target.model.config.get_text_config(decoder=True).layer_types
    return {kinds[layer]: layer for layer in layers}


def check_rotation(config: SpeculativeConfig, target: TargetHandle) -> None:
    """Raises ``DraftError`` when the assistant turns its queries unlike the target turned the keys."""
    own, keys = config.get("draft.rope_scaling"), target.model.config.get_text_config(decoder=True).rope_parameters
    for kind in (own or {}) if keys else ():
        wanted = {k: v for k, v in dict(own[kind] or {}).items() if v is not None}
        found = {k: v for k, v in dict(keys.get(kind) or {}).items() if v is not None}
        if wanted != found:
            raise DraftError(
                f"the assistant's rope_parameters of {kind} are {wanted}, the target's are {found}; the assistant reads "
                "keys that the target turned, so both must agree: use the assistant that was made for this target"
            )
