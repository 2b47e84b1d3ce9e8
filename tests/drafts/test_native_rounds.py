"""A lane whose network runs in the native kernels drafts what it drafts in torch: greedy, drawn, batched, in chunks."""

from __future__ import annotations

import random

import pytest
import torch
from specdec_kernels.cpu import build
from toy_drafts import KINDS, VOCAB, H, Toy

from specdec.drafts.lane import Lane
from specdec.drafts.runner import DraftRunner
from specdec.model.step import Needs, States, Step

pytestmark = pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
CPU, K = torch.device("cpu"), 4


def step_of(rows: list[tuple[int, int, list[int], int, int]], wanted: list[int], temperature: float) -> Step:
    """``rows``: slot, first position, tokens, rejected, the token behind what holds."""
    offsets, ids, positions = [0], [], []
    for _, start, tokens, _, _ in rows:
        ids += tokens
        positions += range(start, start + len(tokens))
        offsets.append(len(ids))
    generator = torch.Generator().manual_seed(sum(ids))
    lists = {
        "slots": [r[0] for r in rows], "num_drafts": wanted, "token_ids": ids, "positions": positions,
        "row_offsets": offsets, "num_rejected": [r[3] for r in rows], "last_sampled": [r[4] for r in rows],
        "next_token": [r[4] for r in rows], "finished": [False] * len(rows),
        "temperature": [temperature] * len(rows), "seeds": [7 + r[0] for r in rows],
    }  # fmt: skip
    return Step.of_lists(lists, states=States(last=torch.randn(len(ids), 3 * H, generator=generator)), device=CPU)


def lanes(make_config, kind: str, **options: object) -> tuple[Lane, Lane]:
    """The same lane twice, the second one in torch."""
    made = []
    for native in (True, False):
        network = Toy(kind, torch.float32)
        if not native:
            network.parts = lambda: None
        config = make_config(K, options, target={"vocab_size": VOCAB})
        made.append(Lane(DraftRunner(None, 700, CPU, 4), network, Needs(last=True), config))
    assert made[0].native is not None and made[1].native is None
    return made[0], made[1]


@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_those_of_the_torch_lane(make_config, kind, sampling):
    both, rng = lanes(make_config, kind, draft_sample_method=sampling), random.Random(5)
    ends, length = {}, {0: 600, 1: 3, 2: 20}  # the first prompt is longer than one call takes
    for slot, count in length.items():
        for lane in both:
            lane.start(slot)
        ends[slot] = count
    rows = [(slot, 0, [rng.randrange(VOCAB) for _ in range(n)], 0, rng.randrange(VOCAB)) for slot, n in length.items()]
    for round_ in range(8):
        wanted = [rng.randrange(K + 1) for _ in rows]
        step = step_of(rows, wanted, 0.8 if sampling == "probabilistic" else 0.0)
        asked = [i for i, count in enumerate(wanted) if count]
        drafts = []
        for lane in both:
            lane.feed(step)
            drafts.append(lane.chain(step.only(asked, [wanted[i] for i in asked])) if asked else None)
        if asked:
            assert drafts[0].rows() == drafts[1].rows(), round_
            for r, ids in enumerate(drafts[0].rows() if sampling == "probabilistic" else ()):
                ours, theirs = (d.logits[r, : len(ids)] for d in drafts)
                largest = float(theirs[theirs.isfinite()].abs().max())
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-3 * largest)
        proposed = dict(zip(asked, drafts[0].rows(), strict=True)) if asked else {}
        told = []
        for i, (slot, _, _, _, newest) in enumerate(rows):
            tokens = [newest, *proposed.get(i, [])]
            rejected = rng.randrange(len(tokens))
            told.append((slot, ends[slot], tokens, rejected, rng.randrange(VOCAB)))
            ends[slot] += len(tokens) - rejected
        rows = told
        rng.shuffle(rows)
