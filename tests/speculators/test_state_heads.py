"""Medusa heads and MLP speculators through the engine: lossless in every mode, whatever they draft."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from state_heads import fitted, medusa_weights, mlp_weights, trajectory

import specdec
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

H, V, K, LENGTH = 32, 60, 3, 24
PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9, 9, 9, 9, 9, 9, 9], list(range(1, 24))]
METHODS = ["medusa", "mlp_speculator"]


@pytest.fixture(scope="module")
def target(tiny_llama):
    model, place = tiny_llama(0)
    return model, place, *trajectory(model, PROMPTS, LENGTH, K)


@pytest.fixture(scope="module")
def checkpoints(target, tmp_path_factory) -> dict[str, Path]:
    _, _, _, states, following = target
    mlp = {"model_type": "mlp_speculator", "architectures": ["MLPSpeculatorPreTrainedModel"], "emb_dim": H,
           "inner_dim": 48, "n_predict": K, "vocab_size": V}  # fmt: skip
    made = {
        "medusa": ({"medusa_num_heads": K, "medusa_num_layers": 1}, medusa_weights(states, following)),
        "mlp_speculator": (mlp, mlp_weights(states, following)),
    }
    folders = {}
    for name, (config, tensors) in made.items():
        folders[name] = tmp_path_factory.mktemp(name)
        (folders[name] / "config.json").write_text(json.dumps(config))
        save_file(tensors, folders[name] / "model.safetensors")
    return folders


@pytest.fixture(scope="module")
def engine(target, checkpoints):
    """``engine(method or None, k, chain=False, **options)``; sizes are those of a small engine."""
    model, place = target[:2]

    @functools.cache
    def make(name, k, chain, sizes, options):
        document: dict[str, Any] = {"target": {"model": place, "max_model_len": 128}, "engine": {"max_num_seqs": 64}}
        config = None
        if name is not None:
            block = {"method": name, "model": str(checkpoints[name]), "num_speculative_tokens": k}
            block |= {n: [list(row) for row in v] if isinstance(v, tuple) else v for n, v in options}
            lookup = {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_min": 2, "prompt_lookup_max": 3}
            document["speculative"] = [lookup, block] if chain else block
            config = specdec.resolve(document, target_config=model.config.to_dict()).unwrap()
        fixed = {"max_model_len": 128, "max_num_seqs": 4, "device": "cpu", "adaptive_drafting": False}
        return LLM(model, config, **{**fixed, **dict(sizes)})

    def build(name=None, k=K, chain=False, sizes=(), **options):
        return make(name, k, chain, tuple(sizes), tuple(options.items()))

    return build


def greedy(**extra: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=LENGTH, **extra)


def tokens_of(outputs) -> list[list[int]]:
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [o.outputs[0].token_ids for o in outputs]


@pytest.fixture(scope="module")
def wanted(target) -> list[list[int]]:
    return [text[len(prompt) :] for prompt, text in zip(PROMPTS, target[2], strict=True)]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("k", "sizes", "options"),
    [
        (3, (), {}),
        (1, (), {}),
        (2, (("max_num_batched_tokens", 5),), {}),  # prompts in chunks
        (3, (("max_num_seqs", 1),), {}),
        (3, (), {"chain": True}),
        (3, (), {"draft_sample_method": "probabilistic"}),
        (3, (), {"rejection_sample_method": "block"}),
        (3, (), {"rejection_sample_method": "coupled"}),
        (3, (), {"num_speculative_tokens_per_batch_size": ((1, 1, 3), (2, 2, 1), (3, 4, 0))}),
    ],
    ids=["k3", "k1", "chunks", "one-by-one", "chain", "probabilistic", "block", "coupled", "dynamic-k"],
)  # fmt: skip
def test_greedy_text_is_that_of_transformers(name, k, sizes, options, engine, wanted):
    outputs = engine(name, k, sizes=sizes, **options).generate(PROMPTS, greedy())
    assert tokens_of(outputs) == wanted
    counts = [o.outputs[0].speculation for o in outputs]
    assert sum(c.drafted for c in counts) > 0 and sum(c.verifier_accepted for c in counts) > 0


@pytest.mark.parametrize("name", METHODS)
def test_fitted_heads_are_accepted(name, engine):
    """Draft i is the head's guess of the right place: a shift by one would be accepted hardly ever."""
    counts = [o.outputs[0].speculation for o in engine(name).generate(PROMPTS, greedy())]
    assert sum(c.verifier_accepted for c in counts) > 0.5 * sum(c.drafted for c in counts)


@pytest.mark.parametrize("name", METHODS)
def test_each_request_has_its_own_k(name, engine, wanted):
    params = [greedy(num_speculative_tokens=k) for k in (0, 1, 2, 3)]
    outputs = engine(name).generate(PROMPTS, params)
    assert tokens_of(outputs) == wanted
    drafted = [o.outputs[0].speculation.drafted for o in outputs]
    assert drafted[0] == 0 < drafted[1] and drafted[3] > 0


@pytest.mark.parametrize("name", METHODS)
def test_requests_that_end_inside_their_drafts(name, engine, wanted):
    params = [greedy(stop_token_ids=[tokens[11]]) for tokens in wanted]
    outputs = engine(name).generate(PROMPTS, params)
    for output, tokens in zip(outputs, wanted, strict=True):
        assert output.outputs[0].token_ids == tokens[: tokens.index(tokens[11]) + 1]


SHAPES = [
    {"temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.4},
    {"temperature": 1.2, "top_k": 20, "repetition_penalty": 1.3},
    {"temperature": 0.7, "logit_bias": {3: -100.0, 4: 3.0}, "min_tokens": 6},
    {"temperature": 1.5, "allowed_token_ids": range(40), "min_p": 0.02},
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mode", ["coupled", "standard"])
def test_sampled_text_is_that_of_plain_sampling(name, mode, engine):
    params = [SamplingParams(seed=i, max_tokens=18, **shape) for i, shape in enumerate(SHAPES)]
    outputs = engine(name, rejection_sample_method=mode).generate(PROMPTS, params)
    assert tokens_of(outputs) == tokens_of(engine().generate(PROMPTS, params))
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 0


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mode", ["standard", "block"])
def test_drawn_drafts_keep_the_distribution(name, mode, engine):
    """The first two tokens of many seeds follow the target's exact law; the second one was drafted."""
    params = [SamplingParams(temperature=1.0, seed=i, max_tokens=3) for i in range(512)]
    sizes = (("max_num_seqs", 64),)
    llm = engine(name, sizes=sizes, draft_sample_method="probabilistic", rejection_sample_method=mode)
    prompt = PROMPTS[0]
    outputs = llm.generate([prompt] * len(params), params)
    pairs = torch.tensor(tokens_of(outputs))
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 0
    model = llm.target.model
    with torch.inference_mode():
        first = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        second = model(torch.tensor([[*prompt, t] for t in range(V)])).logits[:, -1].softmax(-1)
    for law, seen in ((first, pairs[:, 0]), (first @ second, pairs[:, 1])):
        counts = torch.bincount(seen, minlength=V).float()
        # chi-square over tokens expected often enough, the rest together
        often = law * len(seen) >= 5
        expected = torch.cat([law[often], law[~often].sum()[None]]) * len(seen)
        got = torch.cat([counts[often], counts[~often].sum()[None]])
        statistic = ((got - expected) ** 2 / expected.clamp_min(1e-9)).sum()
        freedom = int(often.sum())
        assert statistic < freedom + 5 * math.sqrt(2 * freedom) + 5


def test_a_reduced_vocabulary_drafts_target_ids(target, checkpoints, tmp_path, wanted):
    """Heads cut to a list of target ids: nothing else is drafted, and the text stays."""
    model, place, _, states, following = target
    ids = torch.tensor(sorted({t for tokens in wanted for t in tokens})[:12])
    tensors = {}
    for i in range(K):
        tensors[f"blocks.{i}.layers.0.weight"] = torch.zeros(H, H)
        tensors[f"lm_heads.{i}.weight"] = fitted(states, following[:, i + 1], V)[ids]
    config = {"model_type": "medusa", "hidden_size": H, "vocab_size": V, "num_heads": K, "truncated_vocab_size": 12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({**tensors, "token_map": ids}, tmp_path / "model.safetensors")
    block = {"method": "medusa", "model": str(tmp_path), "draft_sample_method": "probabilistic"}
    resolved = specdec.resolve(
        {"target": {"model": place}, "speculative": block}, target_config=model.config.to_dict()
    ).unwrap()
    llm = LLM(model, resolved, max_model_len=128, device="cpu", adaptive_drafting=False)
    seen, propose = set(), llm.speculator.propose

    def watched(step):
        drafts = propose(step)
        seen.update(token for row in drafts.rows() for token in row)
        return drafts

    llm.speculator.propose = watched
    assert tokens_of(llm.generate(PROMPTS, greedy())) == wanted
    llm.generate(PROMPTS, SamplingParams(temperature=1.0, max_tokens=10))
    assert len(seen) > 2 and seen <= set(ids.tolist())
