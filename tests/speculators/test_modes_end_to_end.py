"""Verification modes as configurations name them, through the engine, for every speculator."""

from __future__ import annotations

import functools

import pytest
from specdec_kernels.philox import words

import specdec
from specdec.config.final.speculative_config import Resolution
from specdec.config.show.plan import make_plan
from specdec.config.show.plan_text import plan_text
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9, 9, 9, 9, 9, 9, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]
METHODS = ["ngram", "suffix", "draft_model", "draft_model probabilistic", "pard", "chain", "chain by name"]
SHAPES = [  # one per prompt: everything that shapes a row
    {"temperature": 0.9, "top_p": 0.9, "min_p": 0.01, "presence_penalty": 0.4, "logprobs": 1},
    {"temperature": 1.2, "top_k": 20, "repetition_penalty": 1.3, "frequency_penalty": 0.2},
    {"temperature": 0.7, "logit_bias": {3: -100.0, 4: 3.0}, "bad_words_token_ids": [[5], [4, 4]], "min_tokens": 6},
    {"temperature": 1.5, "allowed_token_ids": range(40), "stop_token_ids": [39], "min_p": 0.02},
]


@pytest.fixture(scope="module")
def engine(tiny_llama):
    """``engine(method, k, **options)``: the tiny target with a configuration; method None decodes plainly."""
    target, place = tiny_llama(0)
    draft = tiny_llama(5)[1]

    def block_of(name, k, options):
        k_of = {"num_speculative_tokens": k, **options}
        lookup = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3, **k_of}
        model = {"method": "draft_model", "model": draft, **k_of}
        inner = [{n: v for n, v in b.items() if n not in k_of} for b in (lookup, model)]
        return {
            "ngram": lookup,
            "suffix": {"method": "suffix", "suffix_decoding_max_spec_factor": 2.0, **k_of},
            "draft_model": model,
            "draft_model probabilistic": {**model, "draft_sample_method": "probabilistic"},
            "itself": {**model, "model": place, "draft_sample_method": "probabilistic"},
            "pard": {**model, "method": "pard", "model": tiny_llama(5, pard_token=59)[1]},
            "chain": [lookup, model],
            "chain by name": {"method": "chain", "speculators": inner, **k_of},
        }[name]

    @functools.cache
    def make(name, k, options, **parts):
        document = {"target": {"model": place, "max_model_len": 128}, "engine": {"max_num_seqs": 4}}
        config = None
        if name is not None:
            document["speculative"] = block_of(name, k, {n: list(v) if isinstance(v, tuple) else v for n, v in options})
            config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
        return LLM(target, config, max_model_len=128, max_num_seqs=4, device="cpu", adaptive_drafting=False, **parts)

    return lambda name=None, k=1, **options: make(name, k, tuple(options.items()))


def completions(outputs):
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [(o.outputs[0].token_ids, o.outputs[0].finish_reason) for o in outputs]


def shaped(max_tokens=18):
    return [SamplingParams(seed=i, max_tokens=max_tokens, **shape) for i, shape in enumerate(SHAPES)]


@pytest.fixture(scope="module")
def plain(engine):
    return completions(engine().generate(PROMPTS, shaped()))


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("name", METHODS)
def test_coupled_verification_gives_the_text_of_plain_sampling(name, k, engine, plain):
    llm = engine(name, k, rejection_sample_method="coupled")
    outputs = llm.generate(PROMPTS, shaped())
    assert completions(outputs) == plain
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 0
    assert completions(llm.generate(PROMPTS[::-1], shaped()[::-1])) == plain[::-1]
    assert completions(llm.generate(PROMPTS[2:3], shaped()[2:3])) == plain[2:3]


@pytest.mark.parametrize("name", [name for name in METHODS if "probabilistic" not in name])
def test_standard_verification_of_drafts_that_are_not_drawn_gives_the_text_of_plain_sampling(name, engine, plain):
    outputs = engine(name, 3).generate(PROMPTS, shaped())
    assert completions(outputs) == plain
    assert sum(o.outputs[0].speculation.drafted for o in outputs) > 0


def test_coupled_drafting_shares_the_noise(engine):
    """Drafts drawn with the target's own noise agree with it more often than argmax drafts do."""
    hot = [SamplingParams(temperature=1.0, seed=i, max_tokens=40) for i in range(4)]
    outputs = engine("itself", 4, rejection_sample_method="coupled").generate(PROMPTS, hot)
    for output in outputs:
        counts = output.outputs[0].speculation
        assert counts.verifier_accepted == counts.drafted > 0


@pytest.mark.parametrize("mode", ["standard", "block"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_equal_to_the_target_is_accepted_in_full(mode, temperature, engine):
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=30) for i in range(4)]
    for output in engine("itself", 4, rejection_sample_method=mode).generate(PROMPTS, params):
        counts = output.outputs[0].speculation
        assert counts.verifier_accepted == counts.drafted > 20


@pytest.mark.parametrize("name", ["ngram", "draft_model probabilistic", "chain"])
def test_block_verification_keeps_greedy_text_and_seeds(name, engine):
    greedy = [SamplingParams(temperature=0.0, max_tokens=30)] * 4
    llm = engine(name, 4, rejection_sample_method="block")
    assert completions(llm.generate(PROMPTS, greedy)) == completions(engine().generate(PROMPTS, greedy))
    together = completions(llm.generate(PROMPTS, shaped()))
    assert together == [completions(llm.generate([p], [sp]))[0] for p, sp in zip(PROMPTS, shaped(), strict=True)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_synthetic_verification_accepts_at_the_asked_rates(temperature, engine):
    rates = (0.9, 0.6, 0.2)
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=100) for i in range(12)]
    options = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}
    llm = engine("draft_model", 3, **options)
    outputs = llm.generate([[i] for i in range(12)], params)
    llm_metrics = llm.engine.metrics.pooled
    rounds = llm_metrics.drafted_per_position[0]
    for asked, seen in zip(rates, llm_metrics.acceptance_per_position, strict=True):
        assert abs(seen - asked) < 5 * (asked * (1 - asked) / rounds) ** 0.5  # one in two million by chance
    assert {o.guarantee for o in outputs} == {"lossy"}


def test_synthetic_verification_by_mean_length(engine):
    llm = engine("draft_model", 4, rejection_sample_method="synthetic", synthetic_acceptance_length=2.5)
    llm.generate([[i] for i in range(8)], SamplingParams(temperature=0.0, max_tokens=100))
    pooled = llm.engine.metrics.pooled
    assert abs(pooled.mean_accepted_length - 2.5) < 5 * 0.5 / pooled.steps_with_drafts**0.5


def test_fly_is_lossy_and_says_so_everywhere(engine):
    llm = engine("draft_model", 4, rejection_sample_method="fly", fly_entropy_threshold=0.0, fly_window_size=1)
    params = [SamplingParams(temperature=1.0, seed=i, max_tokens=60) for i in range(4)]
    outputs = llm.generate(PROMPTS, params)
    counts = llm.engine.metrics.pooled
    standard = engine("draft_model", 4, rejection_sample_method="standard")
    standard.generate(PROMPTS, params)
    assert counts.acceptance_rate > standard.engine.metrics.pooled.acceptance_rate
    assert llm.config.verification.guarantee == "lossy" and any(w.code == "lossy-method" for w in llm.config.warnings)
    assert "LOSSY" in plan_text(make_plan(Resolution(llm.config, ()))).splitlines()[0]
    assert outputs[0].to_dict()["guarantee"] == "lossy"
    assert 'guarantee="lossy"' in llm.engine.metrics.prometheus()
    assert standard.generate(PROMPTS[0], params[0])[0].to_dict()["guarantee"] == "lossless"


@pytest.mark.parametrize("name", ["ngram", "suffix", "draft_model probabilistic", "pard", "chain"])
@pytest.mark.parametrize("mode", ["standard", "block"])
def test_no_noise_is_used_twice(name, mode, engine, monkeypatch):
    """Every key (seed, position, slot, role) that drafting or verification of a batch consumes, recorded at the source."""
    used, draw = set(), words.uniform

    def recorded(*key):
        assert key not in used, key
        used.add(key)
        return draw(*key)

    monkeypatch.setattr(words, "uniform", recorded)
    engine(name, 4, rejection_sample_method=mode).generate(PROMPTS, shaped())
    assert len(used) > 60


def test_stop_strings_across_tokens_end_drafted_and_plain_text_alike(tiny_llama):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    target, place = tiny_llama(0)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    document = {
        "target": {"model": place, "max_model_len": 128},
        "speculative": {"method": "draft_model", "model": place, "num_speculative_tokens": 5,
                        "rejection_sample_method": "coupled"},
    }  # fmt: skip
    config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
    parts = {"max_model_len": 128, "tokenizer": tokenizer, "device": "cpu"}
    plain, drafted = LLM(target, **parts), LLM(target, config, adaptive_drafting=False, **parts)
    whole = plain.generate([1, 2, 3], SamplingParams(temperature=0.9, seed=1, max_tokens=30))[0].outputs[0].text
    for at in (7, 16, 30):
        stop = whole[at : at + 5]  # begins and ends inside words
        params = SamplingParams(temperature=0.9, seed=1, max_tokens=30, stop=stop)
        ours, theirs = (llm.generate([1, 2, 3], params)[0].outputs[0] for llm in (drafted, plain))
        assert ours.finish_reason == "stop" and ours.stop_reason == stop and ours.speculation.drafted > 0
        assert (ours.text, ours.token_ids) == (theirs.text, theirs.token_ids)
        assert ours.text == whole[: whole.index(stop)]
        assert "".join(d.text for d in drafted.stream([1, 2, 3], params)) == ours.text
