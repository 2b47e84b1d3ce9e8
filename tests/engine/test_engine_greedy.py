"""Greedy decoding equals transformers, whatever is drafted, on every kind of target."""

from __future__ import annotations

import functools
import random

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], list(range(10, 30)), [8, 8, 8, 8]]
COUNT = 24
ARCHITECTURES = ["llama", "qwen2", "qwen2_window", "qwen3", "gemma", "gemma2", "gemma3", "mistral", "mixtral", "phi"]
ARCHITECTURES += [
    "phi3",
    "gpt2",
    "gpt_neox",
    "olmo",
    "olmo2",
    "granite",
    "cohere",
    "starcoder2",
    "opt",
    "gemma4_shared",
]
ARCHITECTURES += ["stablelm", "gptj", "falcon"]  # their classes do not declare that they use the mask they are given


@pytest.fixture(scope="module")
def llama(tiny):
    return tiny("llama")


@functools.cache
def continuation(model, prompt, count):
    ids = torch.tensor([prompt])
    ones = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=ones, do_sample=False, max_new_tokens=count, pad_token_id=0)
    return tuple(out[0, len(prompt) :].tolist())


def expected(model, prompt, count=COUNT):
    return list(continuation(model, tuple(prompt), count))


def greedy(**changes):
    return SamplingParams(temperature=0.0, **{"max_tokens": COUNT, **changes})


def oracle(model, prompts, count=COUNT + 8):
    """known tokens -> what greedy decoding says next, from transformers."""
    texts = [p + expected(model, p, count) for p in prompts]

    def follow(known, k):
        text = next(t for t in texts if t[: len(known)] == known)
        return text[len(known) : len(known) + k]

    return follow


def tokens(outputs):
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [o.outputs[0].token_ids for o in outputs]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_equals_transformers_with_mixed_drafts(kind, tiny, scripted):
    model = tiny(kind)
    want = [expected(model, p) for p in PROMPTS]
    assert sum(len(set(text)) for text in want) >= 14  # text that loops at once would prove little
    right = oracle(model, PROMPTS)
    dice = random.Random(kind)

    def script(known, k):
        # right up to a random index, wrong there, and sometimes nothing at all
        drafts = right(known, dice.randint(0, k))
        if drafts and dice.random() < 0.6:
            drafts[dice.randrange(len(drafts))] = dice.randrange(61)
        return drafts

    llm = LLM(model, speculator=scripted(script), max_num_seqs=3, max_model_len=64)
    assert tokens(llm.generate(PROMPTS, greedy())) == want
    assert tokens(LLM(model, max_num_seqs=4, max_model_len=64).generate(PROMPTS, greedy())) == want


@pytest.mark.parametrize("index", range(6))
def test_rejection_at_every_index(index, llama, scripted):
    right = oracle(llama, PROMPTS)

    def script(known, k):
        drafts = right(known, k)
        return [*drafts[:index], *((t + 1) % 61 for t in drafts[index:])]

    llm = LLM(llama, speculator=scripted(script, k=5), max_num_seqs=2, max_model_len=64)
    outputs = llm.generate(PROMPTS, greedy())
    assert tokens(outputs) == [expected(llama, p) for p in PROMPTS]
    for output in outputs:
        stats = output.outputs[0].speculation
        assert stats.acceptance_per_position == [float(i < index) for i in range(len(stats.drafted_per_position))]
        assert stats.steps + stats.verifier_accepted == stats.emitted == COUNT


def test_all_drafts_right_takes_fewest_rounds(llama, scripted):
    llm = LLM(llama, speculator=scripted(oracle(llama, PROMPTS[:1]), k=5), max_model_len=64)
    stats = llm.generate(PROMPTS[0], greedy(max_tokens=25))[0].outputs[0].speculation
    assert (stats.steps, stats.verifier_accepted, stats.mean_accepted_length) == (1 + 4, 20, 6.0)


def test_k_changes_between_rounds_including_zero(llama, scripted):
    right = oracle(llama, PROMPTS)
    widths = [0, 5, 1, 0, 0, 3]
    calls = iter(range(10**6))
    speculator = scripted(lambda known, k: right(known, min(k, widths[next(calls) % 6])), k=5)
    llm = LLM(llama, speculator=speculator, max_num_seqs=3, max_model_len=64)
    assert tokens(llm.generate(PROMPTS, greedy())) == [expected(llama, p) for p in PROMPTS]


def test_requests_choose_their_own_k(llama, scripted):
    speculator = scripted(oracle(llama, PROMPTS), k=5)
    llm = LLM(llama, speculator=speculator, max_num_seqs=4, max_model_len=64)
    params = [greedy(num_speculative_tokens=k) for k in (0, 1, 5)] + [greedy()]
    outputs = llm.generate(PROMPTS, params)
    assert tokens(outputs) == [expected(llama, p) for p in PROMPTS]
    widest = [len(o.outputs[0].speculation.drafted_per_position) for o in outputs]
    assert widest == [0, 1, 5, 5]


def test_k_beyond_the_configured_one_is_refused_for_that_request_only(llama, scripted):
    llm = LLM(llama, speculator=scripted(oracle(llama, PROMPTS), k=2), max_model_len=64)
    bad, good = llm.generate(PROMPTS[:2], [greedy(num_speculative_tokens=3), greedy()])
    assert "num_speculative_tokens is 3" in bad.error and "0 to 2" in bad.error
    assert good.outputs[0].token_ids == expected(llama, PROMPTS[1])


@pytest.mark.parametrize("place", [1, 2, 4, 5, 7])
def test_eos_inside_drafts_ends_the_request(place, tiny, scripted):
    model = tiny("llama")
    text = expected(model, PROMPTS[0])
    eos = text[place]
    want = text[: text.index(eos) + 1]
    llm = LLM(model, speculator=scripted(oracle(model, PROMPTS), k=5), max_model_len=64)
    llm.target.eos_token_ids = frozenset([eos])
    completion = llm.generate(PROMPTS[0], greedy())[0].outputs[0]
    assert (completion.token_ids, completion.finish_reason) == (want, "stop")
    assert llm.generate(PROMPTS[0], greedy(ignore_eos=True))[0].outputs[0].token_ids == text


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 11])
def test_max_tokens_inside_drafts(count, llama, scripted):
    speculator = scripted(oracle(llama, PROMPTS), k=4)
    llm = LLM(llama, speculator=speculator, max_num_seqs=4, max_model_len=64)
    outputs = llm.generate(PROMPTS, greedy(max_tokens=count))
    assert tokens(outputs) == [expected(llama, p)[:count] for p in PROMPTS]
    assert {o.outputs[0].finish_reason for o in outputs} == {"length"}


@pytest.mark.parametrize("length", [8, 9, 11, 12, 13, 15])
def test_the_end_of_max_model_len(length, llama, scripted):
    llm = LLM(llama, speculator=scripted(oracle(llama, PROMPTS), k=4), max_model_len=length)
    completion = llm.generate(PROMPTS[0], greedy(max_tokens=None))[0].outputs[0]
    assert completion.token_ids == expected(llama, PROMPTS[0])[: length - len(PROMPTS[0])]
    assert completion.finish_reason == "length"


@pytest.mark.parametrize("budget", [1, 7, 40])
def test_chunked_prefill(budget, tiny, scripted):
    model = tiny("mistral")
    speculator = scripted(oracle(model, PROMPTS))
    llm = LLM(model, speculator=speculator, max_num_seqs=4, max_model_len=64, max_num_batched_tokens=budget)
    assert tokens(llm.generate(PROMPTS, greedy())) == [expected(model, p) for p in PROMPTS]


def test_more_requests_than_slots_with_unequal_lengths(llama, scripted):
    prompts = [[i % 60, (i * 7) % 60, *range(i % 9)] for i in range(11)]
    lengths = [3 + (5 * i) % 13 for i in range(11)]
    llm = LLM(llama, speculator=scripted(oracle(llama, prompts)), max_num_seqs=3, max_model_len=64)
    outputs = llm.generate(prompts, [greedy(max_tokens=n) for n in lengths])
    assert tokens(outputs) == [expected(llama, p, n) for p, n in zip(prompts, lengths, strict=True)]
    assert llm.engine.states.num_free == 3 and not llm.engine.runner.cache.row_of
