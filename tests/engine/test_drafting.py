"""Drafts on their way from a speculator to verification."""

from __future__ import annotations

import pytest
import torch

from specdec.engine.exchange import draft_laws, hand_out
from specdec.engine.requests import Request, derive_seed
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError
from specdec.speculators.base import Drafts

INF = float("inf")


def request(index=0):
    return Request(f"r{index}", index, [1, 2], SamplingParams(temperature=1.0), 0, 20)


def test_drafts_end_at_the_first_minus_one_and_at_what_was_wanted():
    requests = [request(i) for i in range(3)]
    logits = torch.randn(3, 3, 8)
    drafts = Drafts(torch.tensor([[1, 2, 3], [4, -1, 5], [-1, -1, -1]]), logits, torch.rand(3, 3))
    hand_out(drafts, requests, [2, 3, 3], 8)
    assert [r.drafts for r in requests] == [[1, 2], [4], []]
    assert [None if r.draft_logits is None else len(r.draft_logits) for r in requests] == [2, 1, None]
    assert [len(r.confidences) for r in requests] == [2, 1, 0]
    kept = requests[0].draft_logits.clone()
    logits.zero_()  # a speculator may reuse its buffers before these drafts are verified
    assert torch.equal(requests[0].draft_logits, kept)


def test_a_speculator_that_breaks_its_contract_is_named():
    with pytest.raises(EngineError, match="for 1 requests instead of 2"):
        hand_out(Drafts(torch.zeros(1, 1, dtype=torch.int64)), [request(), request(1)], [1, 1], 8)
    with pytest.raises(EngineError, match="token 8; the target's ids are 0 to 7"):
        hand_out(Drafts(torch.tensor([[8]])), [request()], [1], 8)
    with pytest.raises(EngineError, match="token -2"):
        hand_out(Drafts(torch.tensor([[-2]])), [request()], [1], 8)


def test_laws_of_mixed_requests():
    one_hot, full, none = request(), request(1), request(2)
    assert draft_laws([one_hot, none]) is None
    one_hot.drafts = [5]
    full.drafts, full.draft_logits = [0, 3], torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    assert torch.equal(draft_laws([full]), full.draft_logits[None])
    laws = draft_laws([one_hot, full, none])  # the draft vocabulary has 4 ids, token 5 is outside it
    assert laws.shape == (3, 2, 6)
    assert laws[0, 0].tolist() == [-INF] * 5 + [0.0]
    assert torch.equal(laws[1, :, :4], full.draft_logits) and (laws[1, :, 4:] == -INF).all()


@pytest.mark.parametrize("first, second", [(torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)])
def test_laws_of_several_types_are_not_rounded(first, second):
    requests = [request(), request(1)]
    for r, dtype in zip(requests, (first, second), strict=True):
        r.drafts, r.draft_logits = [1], torch.tensor([[0.1, 1e-3, 3.14159, 300.25]]).to(dtype)
    for order in (requests, requests[::-1]):
        for law, r in zip(draft_laws(order), order, strict=True):
            assert torch.equal(law.double(), r.draft_logits.double())


def test_no_draft_is_asked_for_that_could_not_be_accepted():
    r = request()
    assert [r.num_drafts_allowed(k) for k in (0, 5, 99)] == [0, 5, 17]
    r.token_ids += [3] * 17
    assert r.room == 1 and r.num_drafts_allowed(5) == 0


def test_derived_seeds_differ_and_are_63_bit():
    seeds = {derive_seed(s, i) for s in range(20) for i in range(50)}
    assert len(seeds) == 1000 and all(0 <= s < 2**63 for s in seeds)
