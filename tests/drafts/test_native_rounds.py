"""A lane drafts the same in torch, in the native kernels and from graphs: greedy, drawn, batched, in chunks."""

from __future__ import annotations

import random

import pytest
import torch
from specdec_kernels.cpu import build
from toy_drafts import KINDS, VOCAB, H, Toy

from specdec.drafts.run.graphs import ChainGraphs
from specdec.drafts.run.lane import Lane
from specdec.drafts.run.runner import DraftRunner
from specdec.model.step import Needs, States, Step

needs_compiler = pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
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


def replaying(run):
    """What a CUDA graph does, on any device: the outputs keep their place, a replay overwrites them."""
    out = run()
    return out, lambda: out.copy_(run())


def lane_of(make_config, kind: str, how: str, **options: object) -> Lane:
    network = Toy(kind, torch.float32)
    if how != "native":
        network.parts = lambda: None
    config = make_config(K, options, target={"vocab_size": VOCAB})
    lane = Lane(DraftRunner(None, 700, CPU, 4), network, Needs(last=True), config)
    assert (lane.native is not None) == (how == "native")
    if how == "graphs":
        lane.graphs = ChainGraphs(network, lane.cache, lane.layout, replaying)
    return lane


def drive(both: list[Lane], temperature: float) -> None:
    """The same prompts and acceptances through all lanes, whose drafts and laws are compared in every round."""
    ends, rng, length = {}, random.Random(5), {0: 600, 1: 3, 2: 20}  # the first prompt is longer than one call takes
    for slot, count in length.items():
        for lane in both:
            lane.start(slot)
        ends[slot] = count
    rows = [(slot, 0, [rng.randrange(VOCAB) for _ in range(n)], 0, rng.randrange(VOCAB)) for slot, n in length.items()]
    for round_ in range(10):
        wanted = [rng.randrange(K + 1) for _ in rows]
        step = step_of(rows, wanted, temperature)
        asked = [i for i, count in enumerate(wanted) if count]
        drafts = []
        for lane in both:
            lane.feed(step)
            drafts.append(lane.chain(step.only(asked, [wanted[i] for i in asked])) if asked else None)
        if asked:
            assert drafts[0].rows() == drafts[1].rows(), round_
            assert [len(ids) for ids in drafts[0].rows()] == [wanted[i] for i in asked]
            for r, ids in enumerate(drafts[0].rows() if temperature else ()):
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


@needs_compiler
@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
@pytest.mark.parametrize("kind", KINDS)
def test_native_drafts_are_those_of_the_torch_lane(make_config, kind, sampling):
    both = [lane_of(make_config, kind, how, draft_sample_method=sampling) for how in ("native", "torch")]
    drive(both, 0.8 if sampling == "probabilistic" else 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_from_graphs_are_those_of_the_torch_lane(make_config, kind):
    both = [lane_of(make_config, kind, how) for how in ("graphs", "torch")]
    drive(both, 0.0)
    keys = set(both[0].graphs.chains)
    assert {size for size, _, _ in keys} <= {1, 2, 4} and {k for _, k, _ in keys} <= {1, 2, 3, 4}
    assert {kv for _, _, kv in keys} <= {256, 512, 701}


def test_a_graph_writes_nothing_where_a_request_takes_no_part(make_config):
    lane = lane_of(make_config, "beside", "graphs")
    for slot in range(3):
        lane.start(slot)
    rows = [(slot, 0, [3 + slot, 5, 8], 0, 9) for slot in range(3)]
    for wanted in ([4, 4, 4], [0, 2, 0]):
        step = step_of(rows, wanted, 0.0)
        lane.feed(step)
        before = [layer.keys.clone() if layer.is_initialized else None for layer in lane.cache.layers]
        asked = [i for i, count in enumerate(wanted) if count]
        lane.chain(step.only(asked, [wanted[i] for i in asked]))
        rows = [(slot, 3, [9], 0, 4) for slot in range(3)]
    own, held = lane.cache.row_of[1], lane.cache.layers[0].keys
    others = [row for row in range(lane.cache.max_rows) if row != own]
    assert torch.equal(held[others, :, :-1], before[0][others, :, :-1])
    assert torch.equal(held[own, :, 5:-1], before[0][own, :, 5:-1])  # pair at 3, one draft's pair at 4
