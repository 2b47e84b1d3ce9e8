"""Targets with recurrent states: drafts are rejected at every index, and the text is that of transformers."""

from __future__ import annotations

import random

import pytest
import torch

from specdec.config.final.recurrent_states import layer_counts, state_bytes
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import OutOfMemory, TargetError
from specdec.model.recurrent.states import RecurrentStates, Snapshots, Spans
from specdec.model.target import prepare_target
from specdec.verify.verifier import Verifier
from tests.helpers.hybrid_targets import FAMILIES, hybrid_model

K = 3
PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], [8, 8, 8, 7], [5, 4, 3, 2, 1, 30, 9, 8, 7]]
LENGTHS = (14, 9, 12, 10)
PARAMS = [SamplingParams(temperature=0.0, max_tokens=n) for n in LENGTHS]


@pytest.fixture(scope="module")
def targets():
    """Per family: a model, and what transformers writes for the prompts."""
    held = {}

    def build(family):
        if family not in held:
            model, texts = hybrid_model(family), []
            for prompt, length in zip(PROMPTS, LENGTHS, strict=True):
                ids = torch.tensor([prompt])
                options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
                texts.append(model.generate(ids, max_new_tokens=length, **options)[0, len(prompt) :].tolist())
            held[family] = model, texts
        return held[family]

    return build


def wrong_somewhere(texts):
    """Drafts what will be said, but for one token: at another index in each round, and sometimes nowhere."""

    def script(known, k):
        prompt, text = next((p, t) for p, t in zip(PROMPTS, texts, strict=True) if known[: len(p)] == p)
        done = len(known) - len(prompt)
        drafts = (text[done : done + k] + [0] * k)[:k]
        bad = random.Random(100 * len(prompt) + len(known)).randrange(k + 1)
        return [(token + 1) % 61 if i == bad else token for i, token in enumerate(drafts)]

    return script


def texts_of(outputs):
    assert [output.error for output in outputs] == [None] * len(outputs)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("family", FAMILIES)
def test_rejections_at_every_index_leave_the_text_of_transformers(family, targets, scripted):
    model, want = targets(family)
    speculator = scripted(wrong_somewhere(want), k=K)
    # fewer slots than prompts, and prompts in pieces that are shorter than they are
    llm = LLM(
        model, speculator=speculator, max_num_seqs=3, max_num_batched_tokens=4, max_model_len=32, accelerate=False
    )
    assert texts_of(llm.generate(PROMPTS, PARAMS)) == want
    rejected = {int(n) for step in speculator.batches for n in step.num_rejected}
    assert rejected >= {0, 1, 2, 3}
    assert len({token for text in want for token in text}) > 4  # else a wrong state could go unseen


def test_lookup_drafts_and_native_kernels(targets):
    model, want = targets("qwen3_next")
    lookup = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
    llm = LLM(model, lookup, max_num_seqs=2, max_model_len=32, adaptive_drafting=False)
    assert texts_of(llm.generate(PROMPTS, PARAMS)) == want


def test_sampled_text_does_not_depend_on_drafts_or_batch(targets, scripted):
    model, greedy = targets("nemotron_h")
    params = [SamplingParams(temperature=0.9, seed=7 + i, max_tokens=n) for i, n in enumerate(LENGTHS)]
    plain = texts_of(LLM(model, max_model_len=32, accelerate=False).generate(PROMPTS, params))
    options = {"speculator": scripted(wrong_somewhere(greedy), k=K), "verifier": Verifier("coupled")}
    llm = LLM(model, max_num_seqs=3, max_model_len=32, accelerate=False, **options)
    assert texts_of(llm.generate(PROMPTS, params)) == plain


def test_a_forward_that_failed_can_be_tried_again(targets, scripted, monkeypatch):
    model, want = targets("bamba")
    llm = LLM(
        model, speculator=scripted(wrong_somewhere(want), k=K), max_num_seqs=4, max_model_len=32, accelerate=False
    )
    target, calls = llm.target, []
    forward = type(target).forward

    def failing(*args, **kwargs):
        logits = forward(*args, **kwargs)  # states are written by then
        calls.append(logits)
        if len(logits) > 1 and len(calls) % 2:
            raise RuntimeError("once")
        return logits

    monkeypatch.setattr(type(target), "forward", failing)
    assert texts_of(llm.generate(PROMPTS, PARAMS)) == want


def test_snapshots_are_what_memory_is_counted_with(targets):
    model, _ = targets("qwen3_next")
    llm = LLM(model, max_num_seqs=2, max_model_len=32, accelerate=False)
    llm.generate(PROMPTS[0], PARAMS[0])
    held, target = llm.engine.runner.cache.recurrent, llm.target
    conv, state = (2 * 2 + 4) * 8 * 4 * 4, 4 * 8 * 8 * 4  # 8 heads of 8 by 4 columns; 4 heads of 8 by 8; 4 bytes each
    assert target.state_bytes == 2 * (conv + state)
    assert held.num_bytes == 2 * 2 * target.state_bytes  # rows, snapshots
    assert target.layout.num_kv_layers == 1
    target.state_bytes = 10**15
    with pytest.raises(OutOfMemory, match="recurrent states need"):
        from specdec.model.memory import choose_max_model_len

        choose_max_model_len(target, None, 2, max_drafts=K)


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family != "zaya"]
)  # its states follow from code alone
def test_a_config_alone_tells_what_states_take(family):
    model = hybrid_model(family)
    target, config = prepare_target(model, device="cpu"), model.config.to_dict()
    layers = model.config.num_hidden_layers
    assert layer_counts(config, layers) == (target.layout.num_kv_layers, len(target.layout.recurrent))
    assert state_bytes(config, layers, 4) == target.state_bytes


def test_a_ring_of_snapshots_keeps_the_one_before_and_one_per_draft():
    held = RecurrentStates(max_rows=2, depth=4)

    def plan(row, start, count, drafts=0):
        (found,) = held.plan(Spans([row], [start], [count], [drafts]))
        return found

    assert plan(0, 0, 5) == Snapshots(None, [0])
    assert plan(0, 5, 3, drafts=2) == Snapshots(0, [1, 2, 3])
    assert plan(0, 6, 3, drafts=2) == Snapshots(1, [2, 3, 0])  # only one of three tokens was accepted
    assert plan(0, 6, 3, drafts=2) == Snapshots(1, [2, 3, 0])  # tried again
    assert plan(0, 9, 1) == Snapshots(0, [1])
    held.move(0, 1)
    assert plan(1, 10, 2, drafts=1) == Snapshots(1, [2, 3])
    with pytest.raises(ValueError, match="5 snapshots"):
        plan(1, 11, 4, drafts=3)
    assert plan(0, 0, 1) == Snapshots(None, [0])  # another request


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("rwkv", {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2}, "outside transformers' cache"),
        ("recurrent_gemma", {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "lru_width": 32}, "layer 0 in its cache"),
    ],
)  # fmt: skip
def test_states_that_are_kept_elsewhere_are_refused(kind, values, words):
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**values))
    with pytest.raises(TargetError, match=words):
        prepare_target(model, device="cpu")
