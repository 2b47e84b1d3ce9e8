"""The lane of a draft network: batches, chunks, rejections and lengths against a recomputation of each round."""

from __future__ import annotations

import functools

import pytest
import torch
from lane_driver import World, drive, step_of
from torch import nn

from specdec.drafts.network import DraftNetwork
from specdec.drafts.run.lane import Lane
from specdec.drafts.run.runner import DraftRunner
from specdec.model.kv_cache import SlotMap
from specdec.model.step import Needs, Step

CPU, SIZE, VOCAB, HEAD = torch.device("cpu"), 16, 40, 12


class Tiny(DraftNetwork):
    """Two heads of attention over sums of embedding and feature; the head has ``HEAD`` of the target's ids."""

    def __init__(self, reduced: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.num_layers, self.feature_size, self.vocab_size = 1, SIZE, HEAD if reduced else VOCAB
        self.embed, self.project = nn.Embedding(VOCAB, SIZE), nn.Linear(2 * SIZE, SIZE)
        self.qkv, self.out, self.head = (
            nn.Linear(SIZE, 3 * SIZE),
            nn.Linear(SIZE, SIZE),
            nn.Linear(SIZE, self.vocab_size),
        )
        self.times = nn.Embedding(200, SIZE)
        self.to_target = torch.arange(HEAD) * 3 if reduced else None
        for weight in self.parameters():
            weight.data.normal_(0, 0.4)
        self.requires_grad_(False)

    def features(self, states):
        return self.project(states)

    def inputs(self, token_ids, features, first):
        return self.embed(token_ids).masked_fill(first[..., None], 0.0) + features

    def forward(self, x, positions, mask, cache, step=0):
        q, k, v = (self.qkv(x + self.times(positions))[:, None]).chunk(3, -1)
        if cache is not None:
            k, v = cache.update(k, v, 0)
        if mask is None:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)[:, 0])

    def logits(self, hidden, step=0):
        return self.head(hidden)

    def feedback(self, hidden, step=0):
        return torch.tanh(hidden)


def recomputed(network: Tiny, tokens: list[int], states: torch.Tensor, k: int) -> list[int]:
    """Greedy drafts after ``tokens`` whose first len - 1 have true states, without a cache."""
    ids, features = tokens[1:], network.features(states)
    drafts: list[int] = []
    for _ in range(k):
        at = torch.arange(len(ids))[None]
        x = network.inputs(torch.tensor([ids]), features[None], at == 0)
        hidden = network(x, at, None, None)[:, -1]
        best = int(network.logits(hidden).argmax())
        drafts.append(best if network.to_target is None else int(network.to_target[best]))
        ids, features = [*ids, drafts[-1]], torch.cat((features, network.feedback(hidden)))
    return drafts


@pytest.fixture
def lane_of(make_config):
    def make(k: int, network: Tiny | None = None, rows: int = 4, max_len: int = 100, **options: object) -> Lane:
        runner = DraftRunner(None, max_len, CPU, rows)
        config = make_config(k, options, target={"vocab_size": VOCAB})
        return Lane(runner, network or Tiny(), Needs(last=True), config)

    return make


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reduced", [True, False])
def test_every_round_equals_a_recomputation_from_true_states(lane_of, seed, reduced):
    lane = lane_of(4, Tiny(reduced))
    fresh = functools.partial(recomputed, lane.network)
    assert drive(lane, lane.chain, fresh, seed=seed, k=4, vocab=VOCAB, width=2 * SIZE) > 20


def test_drafts_end_at_the_drafts_own_length(lane_of):
    lane, text = lane_of(4, max_len=8), [1, 2, 3, 4, 5, 6, 7]
    lane.start(0)
    row = {"slot": 0, "tokens": text[:-1], "start": 0, "states": World(0, 2 * SIZE).states(text[:-1]), "num_rejected": 0,
           "last_sampled": 7, "next_token": 7, "finished": False}  # fmt: skip
    step = step_of([row], [4])
    lane.feed(step)
    (drafts,) = lane.chain(step).rows()
    # the newest pair stands at position 5; drafts are computed at positions 5, 6 and 7
    assert drafts == recomputed(lane.network, text, World(0, 2 * SIZE).states(text[:-1]), 4)[:3]


def test_laws_are_what_drafts_were_drawn_from_and_stay_until_the_next_round(lane_of):
    lane = lane_of(3, draft_sample_method="probabilistic")
    texts = {slot: [1 + slot, 2, 3, 4] for slot in (0, 2)}
    rows = []
    for slot, text in texts.items():
        lane.start(slot)
        rows.append({"slot": slot, "tokens": text, "start": 0, "states": World(0, 2 * SIZE).states(text), "num_rejected": 0,
                     "last_sampled": 5, "next_token": 5, "finished": False})  # fmt: skip
    step = step_of(rows, [3, 2])
    lists = {**step.lists, "temperature": [0.8, 0.8]}
    step = Step.of_lists(lists, states=step.states, device=CPU)
    lane.feed(step)
    drafts = lane.chain(step)
    assert drafts.logits.shape == (2, 3, VOCAB) and drafts.logits_stay
    allowed = torch.zeros(VOCAB, dtype=torch.bool)
    allowed[lane.network.to_target] = True
    for r, row in enumerate(drafts.rows()):
        for law, token in zip(drafts.logits[r], row, strict=False):
            assert torch.isfinite(law[allowed]).all() and torch.isinf(law[~allowed]).all() and allowed[token]
    hidden = recomputed_hidden(lane.network, [*texts[0], 5], World(0, 2 * SIZE).states(texts[0]))
    torch.testing.assert_close(drafts.logits[0, 0][lane.network.to_target], lane.network.logits(hidden)[0])


def recomputed_hidden(network: Tiny, tokens: list[int], states: torch.Tensor) -> torch.Tensor:
    at = torch.arange(len(tokens) - 1)[None]
    x = network.inputs(torch.tensor([tokens[1:]]), network.features(states)[None], at == 0)
    return network(x, at, None, None)[:, -1]


def test_rows_move_with_those_of_the_target():
    from specdec.model.kv_cache import SlotCache

    slots = SlotMap(3)
    target, draft = SlotCache(1, 3, 8, slots), SlotCache(1, 3, 8, slots)
    for slot in (5, 6, 7):
        target.acquire(slot)
        for cache in (target, draft):
            cache.plan.first_row, cache.plan.num_rows, cache.plan.kv_len, cache.plan.start = cache.row_of[slot], 1, 2, 0
            values = torch.full((1, 1, 2, 4), float(slot) + (cache is draft) * 100)
            cache.update(values, values, 0)
            cache.length_of[slot] = 2
    target.release(5)
    assert target.row_of is draft.row_of and draft.row_of == {6: 1, 7: 0}
    assert float(target.read(7, 0)[0].mean()) == 7.0 and float(draft.read(7, 0)[0].mean()) == 107.0
