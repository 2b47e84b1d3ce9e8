"""Greedy decoding equals transformers, whatever is drafted, on every kind of target."""

from __future__ import annotations

import random

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling_params import SamplingParams

PROMPTS = [[3, 14, 15, 9, 2, 6, 5], [31], list(range(10, 30)), [8, 8, 8, 8]]
COUNT = 24
ARCHITECTURES = [
    "llama",
    "qwen2",
    "qwen2_window",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3",
    "mistral",
    "mixtral",
    "phi",
    "phi3",
    "gpt2",
    "gpt_neox",
    "olmo2",
    "granite",
    "cohere",
    "starcoder2",
]


def expected(model, prompt, count=COUNT):
    out = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=count, pad_token_id=0)
    return out[0, len(prompt) :].tolist()


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
    assert min(len(set(text)) for text in want) >= 3  # text that loops at once would prove little
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
