from __future__ import annotations

import pytest
import torch

from specdec.verify import DraftLogitsStore, Verifier, draw_drafts


def test_round_trip_in_another_order():
    store = DraftLogitsStore(4, 2)
    store.begin([3, 1])
    q = torch.randn(2, 2, 11).bfloat16()
    for step in range(2):
        drawn = draw_drafts(q[:, step], temperature=[1.0, 0.5], seeds=[1, 2], starts=[5, 9], step=step)
        store.write([3, 1], step, q[:, step], drawn.probs)
    laws = store.read([1, 3], [2, 2])
    assert torch.equal(laws.logits, q.flip(0)) and laws.logits.dtype == torch.bfloat16
    assert laws.prob(0, 0) is not None


def test_another_rounds_law_is_never_read():
    store = DraftLogitsStore(2, 3)
    with pytest.raises(ValueError, match="verifies 1 drafts but only 0 were stored"):
        store.read([0], [1])
    store.write([0], 0, torch.zeros(1, 5))
    with pytest.raises(ValueError, match="verifies 2 drafts but only 1"):
        store.read([0], [2])
    store.begin([0])
    with pytest.raises(ValueError, match="only 0"):
        store.read([0], [1])
    with pytest.raises(ValueError, match="writes draft step 1 after 0 steps"):
        store.write([0], 1, torch.zeros(1, 5))


def test_another_dtype_or_vocabulary_is_refused():
    store = DraftLogitsStore(1, 2)
    store.write([0], 0, torch.zeros(1, 5))
    with pytest.raises(ValueError, match="rounding them would verify against another law"):
        store.write([0], 1, torch.zeros(1, 5, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="do not fit"):
        store.write([0], 1, torch.zeros(1, 6))


def test_nothing_stored_means_one_hot_must_be_asked_for():
    with pytest.raises(ValueError, match="draft_laws=None for one-hot"):
        DraftLogitsStore(1, 2).read([0], [0])
    assert DraftLogitsStore.num_bytes(256, 7, 151936, torch.bfloat16) == 544_538_624


def test_stored_laws_verify_like_the_logits_themselves():
    store, x = DraftLogitsStore(1, 2), torch.randn(3, 40)
    q = torch.randn(1, 2, 40)
    for seed in range(10):
        store.begin([0])
        ids = []
        for step in range(2):
            drawn = draw_drafts(q[:, step], temperature=[0.8], seeds=[seed], starts=[4], step=step)
            store.write([0], step, q[:, step], drawn.probs)
            ids.append(int(drawn.token_ids))
        inputs = (x, torch.tensor([ids]))
        kw = {"temperature": [0.8], "seeds": [seed], "positions": [4]}
        for mode in ("standard", "block"):
            a = Verifier(mode)(*inputs, draft_laws=store.read([0], [2]), **kw)
            b = Verifier(mode)(*inputs, draft_laws=q, **kw)
            assert torch.equal(a.token_ids, b.token_ids)
