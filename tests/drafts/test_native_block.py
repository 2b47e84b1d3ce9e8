"""Blocks in the native kernels equal the plain torch network: context, visibility, Markov bias and confidence."""

from __future__ import annotations

import pytest
import torch
from specdec_kernels.cpu import build
from torch import nn

from specdec.drafts.layers import DecoderLayer, LayerFacts, RMSNorm, Rotary
from specdec.drafts.native.check import native_draft
from specdec.drafts.native.parts import DraftParts
from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.network import DraftNetwork
from specdec.model.kv_cache import CachePlan, SlotCache

pytestmark = pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
VOCAB, ROWS, H, RANK, MASK = 97, 53, 64, 16, 7
# layers as (causal, window); whether the anchor's row is sampled; Markov head; confidence
KINDS = {
    "plain": (((False, None),), False, False, False),
    "anchor first": (((False, None), (False, None)), True, False, True),
    "sliding": (((True, 6), (False, 9), (False, 3)), False, True, False),
    "markov": (((False, None),), True, True, True),
}


class ToyWalk:
    def __init__(self, toy: ToyBlock, hidden: torch.Tensor) -> None:
        self.toy, self.hidden, self.base = toy, hidden, toy.head(hidden)

    def row(self, step, tokens, choices):
        scores = self.base[:, step]
        if self.toy.markov:
            scores = scores + self.toy.markov_out(self.toy.markov_in(tokens))
        return scores, self.toy.to_target[None]

    def confidence(self, step, tokens):
        if not self.toy.confident:
            return None
        read = self.hidden[:, step]
        if self.toy.markov:
            read = torch.cat([read, self.toy.markov_in(tokens)], -1)
        return torch.sigmoid(self.toy.judge(read)[:, 0] / self.toy.temperatures[step])


class ToyBlock(DraftNetwork):
    def __init__(self, kind: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.sights, self.anchor_first, self.markov, self.confident = KINDS[kind]
        self.num_layers, self.vocab_size, self.feature_size, self.mask_token_id = len(self.sights), ROWS, H, MASK
        facts = LayerFacts(H, H, 96, 4, 2, 32, 1e-5, qk_norm=True)
        self.layers = nn.ModuleList(DecoderLayer(facts, i) for i in range(self.num_layers))
        names = {"hidden_size": H, "num_attention_heads": 4, "head_dim": 32, "rope_theta": 1e4}
        self.embed, self.rotary, self.lm_head = nn.Embedding(VOCAB, H), Rotary(names), nn.Linear(H, ROWS, bias=False)
        self.fc, self.hidden_norm, self.norm = nn.Linear(3 * H, H, bias=False), RMSNorm(H, 1e-6), RMSNorm(H, 1e-5)
        self.markov_in, self.markov_out = nn.Embedding(VOCAB, RANK), nn.Linear(RANK, ROWS, bias=False)
        self.judge = nn.Linear(H + RANK * self.markov, 1)
        for parameter in self.parameters():
            parameter.data = (torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1)).to(dtype)
        self.register_buffer("blank", torch.randn(H).to(dtype))
        self.temperatures = torch.linspace(0.5, 2, 8)
        self.requires_grad_(False)
        self.to_target = torch.arange(ROWS) + torch.arange(ROWS) // 2

    def features(self, states):
        return self.hidden_norm(self.fc(states))

    def inputs(self, token_ids, features=None, first=None):
        return torch.where((token_ids == self.mask_token_id)[..., None], self.blank, self.embed(token_ids))

    def write_context(self, features, positions, cache):
        rotation = self.rotary(features, positions)
        for layer in self.layers:
            cache.update(*layer.self_attn.keys_values(features, rotation), layer.index)

    def forward(self, x, positions, mask=None, cache=None, step=0):
        rotation, keys = self.rotary(x, positions), torch.arange(cache.plan.kv_len)
        for layer, (causal, window) in zip(self.layers, self.sights, strict=True):
            ago = positions[:, :, None] - keys
            seen = ago >= 0 if causal else torch.ones_like(ago, dtype=torch.bool)
            seen = seen if window is None else seen & (ago < window) & (-ago < window)
            x = layer(x, rotation, seen[:, None], cache)
        return x

    def head(self, hidden):
        return self.lm_head(hidden)

    def logits(self, hidden, step=0):
        return self.head(self.norm(hidden))

    def sampled(self, hidden, count):
        start = 0 if self.anchor_first else 1
        return hidden[:, start : start + count]

    def block_ids(self, anchors, rows):
        ids = anchors.new_full((len(anchors), rows), self.mask_token_id)
        ids[:, 0] = anchors
        return ids

    def walk(self, hidden, anchors, last, count):
        return ToyWalk(self, self.sampled(hidden, count))

    def parts(self) -> DraftParts:
        return DraftParts(
            self.embed, list(self.layers), self.rotary, self.norm, self.lm_head, self.fc,
            windows=[w or 0 for _, w in self.sights], both_ways=[not causal for causal, _ in self.sights],
            context_norm=self.hidden_norm, blank_token=self.mask_token_id, blank=self.blank,
            markov_embed=self.markov_in if self.markov else None, markov=self.markov_out if self.markov else None,
            confidence=self.judge if self.confident else None, confidence_reads_token=self.markov,
            temperatures=self.temperatures,
        )  # fmt: skip


def states_of(seed: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, 3 * H, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_network_is_taken(kind, dtype):
    toy = ToyBlock(kind, dtype)
    assert native_draft(toy, SlotCache(toy.num_layers, 2, 40)) is not None


@pytest.mark.parametrize("name", ["features", "inputs", "write_context", "forward", "head", "walk"])
def test_a_block_network_that_does_more_is_not(name):
    plain = getattr(ToyBlock, name)
    if name == "write_context":
        changed = lambda self, features, *rest: plain(self, features + 0.5, *rest)  # noqa: E731
    elif name == "walk":
        changed = lambda self, hidden, *rest: plain(self, hidden.flip(1), *rest)  # noqa: E731
    else:
        changed = lambda self, *args: plain(self, *args) + 0.5 * torch.arange(1.0, 1 + args[0].shape[-1])[0]  # noqa: E731
    network = type("DoesMore", (ToyBlock,), {name: changed})("markov")
    assert native_draft(network, SlotCache(1, 2, 40)) is None


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_stale_blocks_are_never_seen_whatever_is_accepted(kind):
    """Blocks of two requests after every kind of acceptance, beside a fresh context for each."""
    toy = ToyBlock(kind)
    native = NativeDraft(toy.parts(), toy.to_target, SlotCache(toy.num_layers, 4, 119))
    width, rows, ends = 4 + (not toy.anchor_first), [3, 1], [11, 2]
    states = [states_of(1, 60), states_of(2, 60)]
    written = [0, 0]
    for accepted in ((0, 0), (1, 4), (5, 1), (2, 2), (1, 5)):
        ends = [e + a for e, a in zip(ends, accepted, strict=True)]
        native.write_context(rows, written, [s[w:e] for s, w, e in zip(states, written, ends, strict=True)])
        written = ends
        anchors = torch.tensor([sum(ends) % VOCAB, ends[1]])
        tokens = toy.block_ids(anchors, width).tolist()
        none = [states[0][:0]] * 2
        ids, _ = native.block(rows, ends, tokens, none, [4, 4])
        for r, end in enumerate(ends):
            fresh = SlotCache(toy.num_layers, 1, end + width)
            fresh.plan = CachePlan(0, 1, end, 0)
            toy.write_context(toy.features(states[r][:end])[None], torch.arange(end)[None], fresh)
            fresh.plan = CachePlan(0, 1, end + width, end)
            hidden = toy(toy.inputs(torch.tensor([tokens[r]])), torch.arange(end, end + width)[None], None, fresh)
            walk, before, expected = toy.walk(toy.norm(hidden), None, None, 4), anchors[r : r + 1], []
            for step in range(4):
                before = toy.to_target[walk.row(step, before, before)[0].argmax(-1)]
                expected.append(int(before))
            assert ids[r] == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_block_does_not_depend_on_what_shares_its_pass(kind, dtype):
    toy = ToyBlock(kind, dtype)
    native = NativeDraft(toy.parts(), toy.to_target, SlotCache(toy.num_layers, 4, 119))
    states, width, end = states_of(1, 40, dtype), 5, 40
    none, tokens = states[:0], toy.block_ids(torch.tensor([9]), width).tolist()
    native.write_context([2], [0], [states])
    logits = native.logits([2], [end], tokens, [none], [4])[0]
    ids, chances = native.block([2], [end], tokens, [none], [4], confident=True)
    for first in range(0, end, 7):  # in parts, beside another request's
        native.write_context([1, 3], [3, first], [states[: first % 5 + 1], states[first : first + 7]])
    both = [toy.block_ids(torch.tensor([5]), 17)[0].tolist(), tokens[0]]
    assert torch.equal(native.logits([1, 3], [4, end], both, [none, none], [16, 4])[0][16:], logits)
    again = native.block([1, 3], [4, end], both, [none, none], [16, 4] if not toy.confident else [8, 4], confident=True)
    assert again[0][1] == ids[0] and again[1][1] == pytest.approx(chances[0])
