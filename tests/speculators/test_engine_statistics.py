"""Long sampled texts through the engine against the exact law of a tiny target: total variation 0.02 would show.

The target is a llama whose layers add nothing, so the next token depends on the last one only and its law is known.
A law that is off by a total variation of 0.02 in every row, half of it on each unlikely token, adds N x 0.0035 = 43 on
average to the chi-square statistic of N = 12 288 transitions; 90 % of such samples are above ``BOUND``, and 1 of 10^4
samples of the true law. Seeds are fixed, so a run that passes always passes.
"""

from __future__ import annotations

import math

import pytest
import torch
from block_targets import native_draft

import specdec
from specdec.drafts.run.sampling import DraftRound
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

V, REQUESTS, LENGTH, TEMPERATURE = 3, 96, 128, 0.8
DF = V * (V - 1)
BOUND = DF * (1 - 2 / (9 * DF) + 3.72 * math.sqrt(2 / (9 * DF))) ** 3  # quantile at 1e-4


def table_model(table):
    """A one-layer llama whose logits after token i are ``table[i]``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width = 8
    config = LlamaConfig(
        vocab_size=V, hidden_size=width, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=256, tie_word_embeddings=False, eos_token_id=None, bos_token_id=None,
        pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(V, width))
        # the norm scales a unit vector to length sqrt(width)
        model.lm_head.weight.copy_(torch.tensor(table).T @ torch.eye(V, width) / math.sqrt(width))
    return model


TABLE = [[0.0, 1.9, -0.5], [1.7, 0.0, -0.6], [0.3, -0.3, 2.0]]


@pytest.fixture(scope="module")
def target():
    return table_model(TABLE)


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    """A draft that rather prefers what the target avoids."""
    path = tmp_path_factory.mktemp("draft")
    table_model([[-0.3 * value for value in row] for row in TABLE]).save_pretrained(path)
    return str(path)


@pytest.fixture(scope="module")
def law(target):
    with torch.inference_mode():
        logits = target(torch.arange(V)[:, None]).logits[:, 0].double()
    return torch.softmax(logits / TEMPERATURE, -1)


def chi_square(counts, law):
    expected = counts.sum(1, keepdim=True) * law
    return float(((counts - expected) ** 2 / expected).sum())


def off_by(law, distance):
    """A law at this total variation in every row: mass of the likeliest token moved to the others."""
    moved = torch.full_like(law, distance / (V - 1))
    return law + moved.scatter(1, law.argmax(1, keepdim=True), -distance)


def transitions(target, block, length=LENGTH):
    """Counts of the transitions [V, V], and the share of accepted drafts."""
    document = {"target": {"model": "./target", "max_model_len": LENGTH + 4}, "speculative": block}
    document["engine"] = {"max_num_seqs": REQUESTS, "max_num_batched_tokens": 8192}
    config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
    llm = LLM(target, config, device="cpu", adaptive_drafting=False)
    params = [SamplingParams(temperature=TEMPERATURE, seed=i, max_tokens=length) for i in range(REQUESTS)]
    outputs = llm.generate([[i % V, (i + 1) % V] for i in range(REQUESTS)], params)
    counts = torch.zeros(V, V, dtype=torch.float64)
    for output in outputs:
        assert output.error is None
        ids = torch.tensor([output.prompt_token_ids[-1], *output.outputs[0].token_ids])
        counts.index_put_((ids[:-1], ids[1:]), torch.tensor(1.0, dtype=torch.float64), accumulate=True)
    return counts, llm.engine.metrics.pooled.acceptance_rate


def blocks(draft, target, folder):
    dspark = native_draft(folder, target, "dspark", 3, strength=0.3)
    sparse = {"method": "dspark", "model": dspark, "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}
    model = {"method": "draft_model", "model": draft, "num_speculative_tokens": 2}
    sampled = {**model, "draft_sample_method": "probabilistic"}
    return {
        "standard": sampled,
        "block": {**sampled, "num_speculative_tokens": 3, "rejection_sample_method": "block"},
        "block draft": sparse,
        "block draft, two candidates": {**sparse, "dspark_draft_topk": 2},
        "one-hot": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2},
    }


@pytest.mark.parametrize("name", ["standard", "block", "one-hot", "block draft", "block draft, two candidates"])
def test_sampled_text_follows_the_target(name, target, draft, law, tmp_path):
    counts, rate = transitions(target, blocks(draft, target, tmp_path)[name])
    assert 0.1 < rate < 0.9  # drafts were accepted and rejected, often
    assert chi_square(counts, law) < BOUND < chi_square(counts, off_by(law, 0.02))


def test_a_law_at_another_temperature_is_caught(target, draft, law, monkeypatch, tmp_path):
    """Planted bug: drafts are drawn colder than the law that verification holds against them."""
    choose = DraftRound._choose
    monkeypatch.setattr(DraftRound, "_choose", lambda self, rows, logits, step: choose(self, rows, logits * 6.0, step))
    counts, _ = transitions(target, blocks(draft, target, tmp_path)["standard"], length=48)
    assert chi_square(counts, law) > BOUND
