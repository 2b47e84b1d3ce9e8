"""Priority, laws and upkeep of a chain of speculators."""

from __future__ import annotations

import pytest
import torch

from specdec.speculators.base import BaseSpeculator, Drafts
from specdec.speculators.chain import ChainSpeculator
from specdec.speculators.draft_model import DraftModelSpeculator
from specdec.speculators.ngram import NgramSpeculator

CPU = torch.device("cpu")


class Fixed(BaseSpeculator):
    """Drafts given rows and remembers what it was asked."""

    def __init__(self, config, rows, logits=None, confidences=None) -> None:
        super().__init__(config, CPU)
        self.rows, self.laws, self.sure, self.asked = rows, logits, confidences, []

    def propose(self, batch):
        self.asked.append(batch.num_drafts.tolist())
        rows = batch.slots
        ids = torch.tensor(self.rows)[rows]
        wanted = torch.arange(ids.shape[1]) < batch.num_drafts[:, None]
        given = [None if values is None else values[rows] for values in (self.laws, self.sure)]
        return Drafts(torch.where(wanted, ids, -1), *given)


@pytest.fixture
def chain_of(make_config):
    def make(k, *links):
        chain = ChainSpeculator(make_config(k), CPU)
        chain.links = list(links)
        return chain

    return make


@pytest.fixture
def batch(make_batch, make_request):
    requests = [make_request(i, [1], 9, 3, 1) for i in range(3)]
    return make_batch(requests, [[1], [1], [1]], [0, 0, 0], [5, 5, 5])


def test_the_first_with_drafts_wins_per_request(make_config, chain_of, batch) -> None:
    first = Fixed(make_config(2), [[11, 12], [-1, -1], [13, -1]])
    second = Fixed(make_config(3), [[21, 22, 23]] * 3)
    drafts = chain_of(3, first, second).propose(batch)
    assert drafts.token_ids.tolist() == [[11, 12, -1], [21, 22, 23], [13, -1, -1]]
    assert (first.asked, second.asked) == ([[2, 2, 2]], [[3]])
    assert drafts.logits is None and drafts.confidences is None


def test_members_that_cost_nothing_draft_where_dear_ones_are_not_asked(make_config, chain_of, batch) -> None:
    lookup = Fixed(make_config(3, resources={"draft_pass_bytes": 0}), [[11, 12, 13], [-1, -1, -1], [-1, -1, -1]])
    dear = Fixed(make_config(3, resources={"draft_pass_bytes": 9}), [[21, 22, 23]] * 3)
    chain = chain_of(3, lookup, dear)
    assert chain.costs_nothing == [True, False]
    drafts = chain.propose(batch.only([0, 1, 2], [0, 2, 0], [3, 3, 1]))
    assert drafts.rows() == [[11, 12, 13], [21, 22], []]
    assert drafts.free == [True, False, False]
    assert (lookup.asked, dear.asked) == ([[3, 3, 1]], [[2]])


@pytest.mark.parametrize("laws_first", [True, False])
def test_laws_of_mixed_rounds(make_config, chain_of, batch, laws_first: bool) -> None:
    laws = torch.randn(3, 3, 30)
    plain = Fixed(make_config(3), [[11, 12, -1], [-1, -1, -1], [13, -1, -1]])
    sampled = Fixed(make_config(3), [[-1, -1, -1], [21, 22, 23], [-1, -1, -1]], laws)
    drafts = chain_of(3, *((sampled, plain) if laws_first else (plain, sampled))).propose(batch)
    assert drafts.token_ids.tolist() == [[11, 12, -1], [21, 22, 23], [13, -1, -1]]
    assert torch.equal(drafts.logits[1], laws[1])
    assert drafts.logits[0].softmax(-1)[[0, 1], [11, 12]].tolist() == [1.0, 1.0]
    assert drafts.logits[2].softmax(-1)[0, 13] == 1.0


def test_drafts_without_confidences_beside_others_have_nan(make_config, chain_of, batch) -> None:
    sure = Fixed(make_config(2), [[11, 12], [-1, -1], [13, -1]], confidences=torch.full((3, 2), 0.5))
    drafts = chain_of(3, sure, Fixed(make_config(3), [[21, 22, 23]] * 3)).propose(batch)
    first = drafts.confidences[:, 0]
    assert first[[0, 2]].tolist() == [0.5, 0.5] and bool(first[1].isnan())


def test_ngram_then_draft_model_follows_both(make_config, chain_of, tiny_llama, target_handle, greedy_of, run_greedy):
    def links():
        model = DraftModelSpeculator(make_config(3, {}, draft={"model": tiny_llama(5)[1]}), CPU)
        return NgramSpeculator(make_config(4, {"prompt_lookup_min": 2, "prompt_lookup_max": 4}), CPU), model

    chain = chain_of(4, *links())
    chain.load(target_handle(tiny_llama(0)[0]))
    draft = greedy_of(tiny_llama(5)[0])
    prompts, settings = [[1, 2, 3, 4, 1, 2, 3], [9]], {"max_tokens": 30}

    def target(prefix):
        return draft(prefix) if len(prefix) % 7 else prefix[-3]

    requests = run_greedy(chain, target, prompts, **settings)
    for request, prompt in zip(requests, prompts, strict=True):
        plain = list(prompt)
        for _ in range(30):
            plain.append(target(plain))
        assert request.tokens == plain
    ngram = links()[0]
    lookup_alone = run_greedy(ngram, target, prompts, **settings)
    assert sum(len(r.rounds) for r in requests) < sum(len(r.rounds) for r in lookup_alone)
