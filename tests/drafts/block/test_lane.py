"""The lane of block drafts: every accept and reject pattern, in batches, equals a fresh recomputation; nothing stale is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from block_checkpoints import (
    DFLASH,
    DFLASH2,
    DOMINO,
    DSPARK,
    LILICORR,
    VOCAB,
    XPRESS,
    resolved,
    save,
    shared,
    tensors_of,
)
from block_run import Run
from lane_driver import World, drive, step_of
from specdec_kernels.cpu import build

from specdec.drafts.block.lane import BlockLane
from specdec.drafts.run.runner import DraftRunner
from specdec.model.step import Needs, Step
from specdec.speculators.init import load_network

CPU, WIDTH = torch.device("cpu"), 64
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
KINDS = {
    "dflash": ({**DFLASH}, 4),
    "dflash sliding": ({**DFLASH, **SLIDING}, 4),
    "dspark": ({**DSPARK}, 4),
    "dspark rnn": ({**DSPARK, "markov_head_type": "rnn"}, 4),
    "dspark below its block": ({**DSPARK}, 3),
    "dflash2": ({**DFLASH2}, 4),
    "lilicorr": ({**LILICORR}, 4),
    "xpress": ({**XPRESS}, 4),
    "domino": ({**DOMINO}, 4),
}


def make_lane(folder: Path, name: str, max_len: int = 200, native: bool = True, **options: Any) -> BlockLane:
    checkpoint, k = KINDS[name]
    method = name.split()[0]
    config = resolved(save(folder, checkpoint, tensors_of(method, checkpoint)), method, k, **options)
    network = load_network(config).load(config, shared())
    lane = BlockLane(DraftRunner(None, max_len, CPU, 4), network, Needs(boundaries=(1, 3)), config)
    lane.stated_bytes = config.resources.draft_logits_bytes
    if not native:
        lane.native = None
    # a convolution around a sub-layer is no part that the kernels know
    assert (lane.native is not None) == (native and build.available() and method != "dflash2")
    return lane


def recompute(lane: BlockLane) -> Any:
    def drafts(text: list[int], states: torch.Tensor, count: int) -> list[int]:
        return Run(lane.network, states, text[-1], lane.rows).greedy(count)[0]

    return drafts


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_every_round_equals_a_recomputation(name: str, native: bool, tmp_path: Path) -> None:
    lane = make_lane(tmp_path, name, native=native)
    assert drive(lane, lane.block, recompute(lane), seed=int(native), k=KINDS[name][1], vocab=VOCAB, width=WIDTH) > 20


def test_nothing_behind_the_committed_length_is_seen(tmp_path: Path) -> None:
    """Huge values where a stale entry might be read, before every round; and no rejected row is ever written as context."""
    lane = make_lane(tmp_path, "dspark")
    clean = recompute(lane)

    @torch.inference_mode()
    def poisoned(step: Step) -> Any:
        for layer in lane.cache.layers:
            if layer.is_initialized:
                for slot, row in lane.cache.row_of.items():
                    behind = lane.cache.length_of[slot]
                    layer.keys[row, :, behind:] = 1e18
                    layer.values[row, :, behind:] = 1e18
        return lane.block(step)

    assert drive(lane, poisoned, clean, seed=7, k=4, vocab=VOCAB, width=WIDTH) > 20


@torch.inference_mode()
def test_nan_behind_the_committed_length_is_overwritten(tmp_path: Path) -> None:
    lane, world = make_lane(tmp_path, "dflash sliding"), World(3, WIDTH)
    lane.start(0)
    text = [5, 6, 7, 8, 9, 10]
    for accepted in (6, 1, 3, 5, 2):
        done = lane.pairs.of[0].end
        text = text if done == 0 else [*text, *range(20, 20 + accepted)]
        rows = [*text[done:-1], 40, 41]  # two rejected rows
        row = {"slot": 0, "tokens": rows, "start": done, "states": world.states([*text[:-1], 40, 41])[done:],
               "num_rejected": 2, "last_sampled": text[-1], "next_token": text[-1], "finished": False}  # fmt: skip
        step = step_of([row], [4], lane.pairs.needs)
        lane.feed(step)
        for layer in lane.cache.layers:
            if layer.is_initialized:
                layer.keys[:, :, done:], layer.values[:, :, done:] = torch.nan, torch.nan
        assert lane.block(step).rows() == [recompute(lane)(text, world.states(text[:-1]), 4)]


def test_a_block_at_the_end_of_the_context_still_fits(tmp_path: Path) -> None:
    lane, world = make_lane(tmp_path, "dflash", max_len=8), World(0, WIDTH)
    lane.start(0)
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    row = {"slot": 0, "tokens": text[:-1], "start": 0, "states": world.states(text[:-1]), "num_rejected": 0,
           "last_sampled": 8, "next_token": 8, "finished": False}  # fmt: skip
    step = step_of([row], [4], lane.pairs.needs)
    lane.feed(step)
    assert lane.block(step).rows() == [recompute(lane)(text, world.states(text[:-1]), 2)]


@pytest.mark.parametrize(
    ("name", "options", "sparse"),
    [
        ("dflash", {}, 0),
        ("domino", {}, 0),
        ("dspark", {"dspark_draft_topk": 5}, 5),
        ("dflash2", {}, 4),
        ("lilicorr", {}, 4),
    ],
)
def test_laws_are_what_drafts_were_drawn_from(name: str, options: dict[str, int], sparse: int, tmp_path: Path) -> None:
    lane = make_lane(tmp_path, name, draft_sample_method="probabilistic", dtype="float32", **options)
    world, rows = World(1, WIDTH), []
    for slot in (0, 2):
        lane.start(slot)
        text = [slot + 1, 2, 3, 4]
        rows.append({"slot": slot, "tokens": text, "start": 0, "states": world.states(text), "num_rejected": 0,
                     "last_sampled": 9, "next_token": 9, "finished": False})  # fmt: skip
    step = step_of(rows, [4, 2], lane.pairs.needs)
    step = Step.of_lists({**step.lists, "temperature": [0.7, 1.3]}, states=step.states, device=CPU)
    lane.feed(step)
    drafts = lane.block(step)
    for r, (row, count) in enumerate(zip(drafts.rows(), (4, 2), strict=True)):
        assert len(row) == count
        # the same walk, forced along the drawn tokens: stored logits are those before temperature
        run = Run(lane.network, rows[r]["states"], 9, lane.rows)
        hidden, tokens = run.hidden(), torch.tensor([9])
        walk = lane.network.walk(hidden, tokens, lane.network.features(rows[r]["states"][-1:]), count)
        choices = torch.zeros_like(tokens)
        for step_number, token in enumerate(row):
            scores, ids = walk.row(step_number, tokens, choices)
            tokens = torch.tensor([token])
            choices = tokens if ids is None else torch.tensor([ids[0].tolist().index(token)])
            law = drafts.logits[r]
            if not sparse:
                assert torch.allclose(law[step_number], scores[0], atol=1e-5)
                continue
            assert law.ids[step_number].tolist() == ids[0].tolist() and token in ids[0].tolist()
            assert torch.allclose(law.logits[step_number], scores[0], atol=1e-5)
            full = law.dense().logits[step_number]
            assert torch.isfinite(full).sum() == sparse and full.shape == (VOCAB,)
    held = lane.runner._stores[lane.sampling].held_bytes
    assert held == lane.stated_bytes
    assert held == (4 * 4 * sparse * 8 if sparse else 4 * 4 * VOCAB * 4)
