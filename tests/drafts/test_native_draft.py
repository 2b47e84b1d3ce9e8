"""Rounds of a draft in the native kernels equal the plain torch network, and a row never depends on its company."""

from __future__ import annotations

import eagle_heads as heads
import pytest
import torch
from specdec_kernels.cpu import build
from toy_drafts import KINDS, ROWS, VOCAB, H, Toy

from specdec.drafts.eagle import EagleDraft
from specdec.drafts.eagle3 import Eagle3Draft
from specdec.drafts.native.check import native_draft
from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.peagle import PEagleDraft
from specdec.model.kv_cache import SlotCache
from specdec.model.target import prepare_target

pytestmark = pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
CAPACITY = 150


def make(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Toy, NativeDraft]:
    toy = Toy(kind, dtype)
    cache = SlotCache(toy.num_layers, 4, CAPACITY - 1)
    return toy, NativeDraft(toy.parts(), toy.to_target, cache)


def pairs(seed: int, count: int, dtype: torch.dtype = torch.float32) -> tuple[list[int], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (count,), generator=generator).tolist(), torch.randn(
        count, 3 * H, generator=generator
    ).to(dtype)


def recomputed(toy: Toy, tokens: list[int], states: torch.Tensor, drafts: int) -> tuple[list[int], list[torch.Tensor]]:
    """Greedy drafts and the logits they come from, everything recomputed at every step."""
    tokens, features, ids, rows = list(tokens), toy.features(states), [], []
    for _ in range(drafts):
        x = toy.inputs(torch.tensor(tokens), features, torch.arange(len(tokens)) == 0)
        hidden = toy(x[None], torch.arange(len(tokens))[None], None, None)[0, -1:]
        rows.append(toy.logits(hidden)[0])
        ids.append(int(toy.to_target[rows[-1].argmax()]))
        tokens, features = [*tokens, ids[-1]], torch.cat([features, toy.feedback(hidden)])
    return ids, rows


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_chain_equals_full_recomputation_in_every_round(kind):
    toy, native = make(kind)
    texts = [pairs(1, 60), pairs(2, 60)]
    ends = [(9, 30), (10, 33), (14, 34), (15, 40)]  # prompts, then what was accepted
    steps = [(3, 5), (0, 2), (4, 0), (1, 3)]
    begin = [0, 0]
    for (a, b), wanted in zip(ends, steps, strict=True):
        parts = [(t[0][i:j], t[1][i:j]) for t, i, j in zip(texts, begin, (a, b), strict=True)]
        ids, chances = native.chain([2, 0], begin, [p[0] for p in parts], [p[1] for p in parts], wanted, confident=True)
        for r, end in enumerate((a, b)):
            expected, rows = recomputed(toy, texts[r][0][:end], texts[r][1][:end], wanted[r])
            assert ids[r] == expected
            top = [float(row.softmax(-1).max()) for row in rows]
            assert chances[r] == pytest.approx(top, abs=1e-5)
        begin = [a, b]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_logits_and_features_come_out_for_draws(kind):
    toy, native = make(kind)
    (tokens, states), drafts = pairs(1, 20), [5, 8, 13]
    logits, features = native.logits([1], [0], [tokens], [states])
    own = toy.features(states)
    for step in range(4):
        x = toy.inputs(torch.tensor(tokens), own, torch.arange(len(tokens)) == 0)
        hidden = toy(x[None], torch.arange(len(tokens))[None], None, None)[0, -1:]
        for ours, theirs in ((logits, toy.logits(hidden)), (features, toy.feedback(hidden))):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4 * float(theirs.abs().max()))
        if step < 3:
            tokens, own = [*tokens, drafts[step]], torch.cat([own, toy.feedback(hidden)])
            logits, features = native.logits([1], [20 + step], [[drafts[step]]], [features], projected=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_row_does_not_depend_on_what_shares_its_round(kind, dtype):
    _, native = make(kind, dtype)
    tokens, states = pairs(1, 70, dtype)
    others, theirs = pairs(2, 70, dtype)
    alone = [native.logits([0], [i], [[t]], [states[i : i + 1]]) for i, t in enumerate(tokens)]
    expected, drafts = alone[-1], native.chain([0], [70], [others[:1]], [theirs[:1]], [6])[0]
    for widths in ((70,), (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 12), (67, 3)):
        at = 0
        for width in widths:
            chunk, company = slice(at, at + width), slice(0, 1 + at % 19)
            got = native.logits(
                [1, 3, 2], [2, at, 0], [others[company], tokens[chunk], others[chunk]],
                [theirs[company], states[chunk], theirs[chunk]], [1, 1, 0],
            )  # fmt: skip
            at += width
        assert torch.equal(got[0][1:], expected[0]) and torch.equal(got[1][1:], expected[1])
        wide = native.chain([2, 3], [9, 70], [others[:9], others[:1]], [theirs[:9], theirs[:1]], [2, 6])[0]
        assert wide[1] == drafts[0]


@torch.inference_mode()
def test_greedy_drafts_are_the_argmax_of_the_logits_that_would_be_written():
    _, native = make("beside", torch.bfloat16)
    tokens, states = pairs(4, 40, torch.bfloat16)
    for end in range(1, 40):
        ids, _ = native.chain([0], [0], [tokens[:end]], [states[:end]], [1])
        logits, _ = native.logits([0], [0], [tokens[:end]], [states[:end]])
        assert ids[0] == [int(torch.arange(ROWS)[logits[0].argmax()] + logits[0].argmax() // 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_says_its_parts_is_taken_and_one_that_does_more_is_not(kind):
    toy = Toy(kind, torch.bfloat16)
    assert native_draft(toy, SlotCache(toy.num_layers, 2, 40)) is not None
    for name in ("features", "inputs", "forward", "logits", "feedback"):
        does_more = type("DoesMore", (Toy,), {name: _shifted(getattr(Toy, name))})
        assert native_draft(does_more(kind, torch.bfloat16), SlotCache(toy.num_layers, 2, 40)) is None, name


def _shifted(method):
    return lambda self, *args: method(self, *args) + 0.5


def test_a_network_that_names_no_parts_runs_in_torch():
    toy = Toy("beside", torch.float32)
    toy.parts = lambda: None
    assert native_draft(toy, SlotCache(1, 2, 40)) is None


HEAD3 = {**heads.COMMON, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": heads.REDUCED}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("method", "flags", "layers"),
    [("eagle", {}, 1), ("eagle3", {}, 1), ("eagle3", {"norm_before_residual": True}, 3), ("eagle3", {"norm_output": True}, 2),
     ("peagle", {"mask_token_id": 3}, 2)],
)  # fmt: skip
def test_eagle_heads_of_every_kind_are_taken(tmp_path, method, flags, layers, dtype):
    target = prepare_target(heads.target_model().to(getattr(torch, dtype)), device="cpu").handle(128)
    if method == "eagle":
        path = heads.write(tmp_path, heads.COMMON, heads.eagle1_tensors(bias=True))
        network = EagleDraft.load(heads.resolved(method, path), target)
    else:
        tensors = heads.eagle3_tensors(layers=layers)
        if method == "peagle":
            tensors["mask_hidden"] = torch.randn(1, 3 * heads.HIDDEN)
        path = heads.write(tmp_path, {**HEAD3, "num_hidden_layers": layers, **flags}, heads.midlayer(tensors))
        network = (PEagleDraft if method == "peagle" else Eagle3Draft).load(heads.resolved(method, path), target)
    assert native_draft(network, SlotCache(layers, 2, 40)) is not None
