"""Every speculator of this package through the engine: greedy equality with transformers, seeds, batches, acceptance."""

from __future__ import annotations

import functools

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.verify.verifier import Verifier

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9, 9, 9, 9, 9, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]
LOOKUP = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
METHODS = ["ngram", "ngram leftmost", "suffix", "draft_model", "draft_model probabilistic", "pard", "chain"]


@pytest.fixture(scope="module")
def blocks(tiny_llama):
    """The ``speculative:`` block of each method; drafts are another tiny model than the target."""
    draft = tiny_llama(5)[1]

    def make(name: str, k: int) -> dict:
        lookup = {"method": "ngram", "num_speculative_tokens": k, **LOOKUP}
        model = {"method": "draft_model", "num_speculative_tokens": k, "model": draft}
        return {
            "ngram": lookup,
            "ngram leftmost": {**lookup, "prompt_lookup_match": "leftmost"},
            "suffix": {"method": "suffix", "num_speculative_tokens": k, "suffix_decoding_max_spec_factor": 2.0},
            "draft_model": model,
            "draft_model probabilistic": {**model, "draft_sample_method": "probabilistic"},
            "pard": {**model, "method": "pard", "model": tiny_llama(5, pard_token=59)[1]},
            "chain": [lookup, model],
        }[name]

    return make


@pytest.fixture(scope="module")
def engine(tiny_llama, blocks):
    @functools.cache
    def make(name: str | None, k: int = 3, **parts) -> LLM:
        block = blocks(name, k) if isinstance(name, str) else None
        document = None if block is None else resolve_block(block, tiny_llama(0))
        return LLM(tiny_llama(0)[0], document, max_model_len=128, max_num_seqs=4, device="cpu", **parts)

    return make


def resolve_block(block, target):
    from specdec import resolve

    model, path = target
    document = {"target": {"model": path, "max_model_len": 128}, "speculative": block, "engine": {"max_num_seqs": 4}}
    return resolve(document, target_config=model.config.to_dict()).unwrap()


@pytest.fixture(scope="module")
def reference(tiny_llama):
    @functools.cache
    def of(prompt: tuple[int, ...], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        out = tiny_llama(0)[0].generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0
        )
        return out[0, len(prompt) :].tolist()

    return of


def tokens(outputs) -> list[list[int]]:
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [o.outputs[0].token_ids for o in outputs]


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("name", METHODS)
def test_greedy_equals_transformers(name: str, k: int, engine, reference) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (40, 17, 30, 8)]
    got = tokens(engine(name, k).generate(PROMPTS, params))
    assert got == [reference(tuple(p), sp.max_tokens) for p, sp in zip(PROMPTS, params, strict=True)]


@pytest.mark.parametrize("name", METHODS)
def test_drafts_are_really_verified(name: str, engine) -> None:
    llm = engine(name, 3, adaptive_drafting=False)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=60))
    counts = [o.outputs[0].speculation for o in outputs]
    assert sum(c.drafted for c in counts) > 20


@pytest.mark.parametrize("name", METHODS)
def test_one_seed_one_output_alone_and_in_any_batch(name: str, engine) -> None:
    llm = engine(name, 3)
    params = [SamplingParams(temperature=t, seed=s, max_tokens=15) for t, s in ((1.0, 7), (0.6, 8), (0.0, 9), (1.3, 7))]
    together = tokens(llm.generate(PROMPTS, params))
    reverse = tokens(llm.generate(PROMPTS[::-1], params[::-1]))[::-1]
    assert together == reverse
    assert together == [tokens(llm.generate([p], [sp]))[0] for p, sp in zip(PROMPTS, params, strict=True)]


@pytest.mark.parametrize("name", METHODS)
def test_coupled_sampling_equals_plain_sampling(name: str, engine, tiny_llama) -> None:
    plain = engine(None, verifier=None)
    coupled = engine(name, 3, verifier=coupled_verifier())
    params = [SamplingParams(temperature=0.9, seed=i, max_tokens=25, top_p=0.9, min_p=0.01) for i in range(4)]
    assert tokens(coupled.generate(PROMPTS, params)) == tokens(plain.generate(PROMPTS, params))


@functools.cache
def coupled_verifier() -> Verifier:
    return Verifier("coupled")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_target_as_its_own_draft_is_accepted_in_full(temperature: float, tiny_llama) -> None:
    block = {
        "method": "draft_model",
        "num_speculative_tokens": 4,
        "model": tiny_llama(0)[1],
        "draft_sample_method": "probabilistic",
    }
    config = resolve_block(block, tiny_llama(0))
    llm = LLM(tiny_llama(0)[0], config, max_model_len=128, max_num_seqs=4, device="cpu", adaptive_drafting=False)
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=30) for i in range(4)]
    for output in llm.generate(PROMPTS, params):
        counts = output.outputs[0].speculation
        assert counts.verifier_accepted == counts.drafted > 20


@pytest.mark.parametrize("name", ["ngram", "draft_model probabilistic", "pard"])
def test_every_sampling_parameter_holds_on_drafted_positions(name: str, engine) -> None:
    shapes = [
        {"allowed_token_ids": list(range(20))},
        {"logit_bias": {3: -100.0, 4: 8.0}},
        {"top_k": 1, "temperature": 1.5},
        {"bad_words_token_ids": [[4], [9, 9]], "min_tokens": 5},
    ]
    for shape in shapes:
        params = SamplingParams(**{"temperature": 0.9, "seed": 3, "max_tokens": 30, **shape})
        for text in tokens(engine(name, 4).generate(PROMPTS, params)):
            if "allowed_token_ids" in shape:
                assert max(text) < 20
            if "logit_bias" in shape:
                assert 3 not in text
            if "bad_words_token_ids" in shape:
                assert 4 not in text and all(text[i : i + 2] != [9, 9] for i in range(len(text)))
    greedy = SamplingParams(temperature=0.0, max_tokens=30, repetition_penalty=1.4, frequency_penalty=0.3)
    assert tokens(engine(name, 4).generate(PROMPTS, greedy)) == tokens(engine(None).generate(PROMPTS, greedy))
    top1 = SamplingParams(temperature=1.5, top_k=1, seed=1, max_tokens=20)
    plain = SamplingParams(temperature=0.0, max_tokens=20)
    assert tokens(engine(name, 4).generate(PROMPTS, top1)) == tokens(engine(None).generate(PROMPTS, plain))


class Alternate:
    """(20 21)*; raises on a prefix outside the language."""

    def allowed(self, prefix):
        if any(t != 20 + i % 2 for i, t in enumerate(prefix)):
            raise RuntimeError(f"outside the grammar: {list(prefix)}")
        mask = torch.zeros(60, dtype=torch.bool)
        mask[20 + len(prefix) % 2] = True
        return mask


def test_a_grammar_survives_drafts_outside_it(engine) -> None:
    params = SamplingParams(temperature=0.7, seed=1, max_tokens=12, constraint=Alternate())
    for name in ("draft_model probabilistic", "ngram"):
        for text in tokens(engine(name, 4).generate(PROMPTS * 8, params)):
            assert text == [20, 21] * 6


def test_speculation_can_be_off_for_one_request(engine, reference) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=20, num_speculative_tokens=n) for n in (0, 1, None, 2)]
    outputs = engine("draft_model", 3, adaptive_drafting=False).generate(PROMPTS, params)
    assert tokens(outputs) == [reference(tuple(p), 20) for p in PROMPTS]
    assert outputs[0].outputs[0].speculation.drafted == 0
    assert len(outputs[3].outputs[0].speculation.drafted_per_position) == 2
