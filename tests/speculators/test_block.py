"""Block drafts through the engine: greedy text is the target's, whatever was drafted, in batches and alone."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from block_checkpoints import DFLASH2, DOMINO, LILICORR, VOCAB, XPRESS, save, tensors_of
from block_targets import native_draft

import specdec
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [41], [9] * 7, list(range(1, 15)), [3, 50, 2]]
DRAFTS: dict[str, dict[str, Any]] = {
    "dflash": {"method": "dflash"},
    "dspark": {"method": "dspark"},
    "dspark topk": {"method": "dspark", "dspark_draft_topk": 8},
}


@pytest.fixture(scope="module")
def engine(tiny_llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafts")
    target, place = tiny_llama(0)

    @functools.cache
    def make(name: str, k: int = 4, adaptive: bool = False, **options: Any) -> LLM:
        given = DRAFTS[name]
        model = native_draft(folder / given["method"], target, given["method"], 5)
        document = {
            "target": {"model": place, "max_model_len": 96},
            "engine": {"max_num_seqs": 4, "max_num_batched_tokens": 32},
            "speculative": {**given, "num_speculative_tokens": k, "model": model, **options},
        }
        config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
        return LLM(target, config, device="cpu", adaptive_drafting=adaptive)

    return make


@pytest.fixture(scope="module")
def plain(tiny_llama):
    llm = LLM(tiny_llama(0)[0], max_model_len=96, max_num_seqs=4, device="cpu")
    return lambda prompts, params: tokens(llm.generate(prompts, params))


def tokens(outputs: Any) -> list[list[int]]:
    assert all(o.error is None for o in outputs), [o.error for o in outputs]
    return [o.outputs[0].token_ids for o in outputs]


@pytest.mark.parametrize(("k", "adaptive"), [(1, False), (3, False), (4, False), (4, True)])
@pytest.mark.parametrize("name", DRAFTS)
def test_greedy_text_is_the_targets(name: str, k: int, adaptive: bool, engine, plain) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (30, 17, 40, 8, 25)]
    assert tokens(engine(name, k, adaptive).generate(PROMPTS, params)) == plain(PROMPTS, params)


@pytest.mark.parametrize("name", DRAFTS)
def test_probabilistic_drafts_leave_greedy_text_alone_and_batches_too(name: str, engine, plain) -> None:
    llm = engine(name, draft_sample_method="probabilistic")
    params = [SamplingParams(temperature=t, seed=i, max_tokens=20) for i, t in enumerate((0.0, 0.7, 0.0, 1.2, 0.9))]
    together, greedy = tokens(llm.generate(PROMPTS, params)), plain(PROMPTS, params)
    assert [together[i] for i in (0, 2)] == [greedy[i] for i in (0, 2)]
    assert together == [tokens(llm.generate([p], q))[0] for p, q in zip(PROMPTS, params, strict=True)]


def test_confidences_of_the_head_reach_the_policy(engine, plain) -> None:
    llm = engine("dspark", adaptive=True, enable_adaptive_verification=True)
    params = SamplingParams(temperature=0.0, max_tokens=30)
    assert tokens(llm.generate(PROMPTS, params)) == plain(PROMPTS, params)


def test_a_schedule_of_k_changes_no_text(tiny_llama, tmp_path, plain) -> None:
    target, place = tiny_llama(0)
    block = {
        "method": "dspark",
        "model": native_draft(tmp_path, target, "dspark", 5),
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 2, 0], [3, 4, 2]],
    }
    document = {"target": {"model": place, "max_model_len": 96}, "engine": {"max_num_seqs": 4}, "speculative": block}
    config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
    llm = LLM(target, config, device="cpu", adaptive_drafting=False)
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (30, 17, 40, 8, 25)]
    outputs = llm.generate(PROMPTS, params)
    assert tokens(outputs) == plain(PROMPTS, params)


def test_chain_with_prompt_lookup_keeps_laws_apart(tiny_llama, tmp_path, plain) -> None:
    target, place = tiny_llama(0)
    members = [
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3},
        {"method": "dspark", "model": native_draft(tmp_path, target, "dspark", 5), "num_speculative_tokens": 4,
         "draft_sample_method": "probabilistic", "dspark_draft_topk": 6},
    ]  # fmt: skip
    document = {"target": {"model": place, "max_model_len": 96}, "engine": {"max_num_seqs": 4}, "speculative": members}
    config = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
    llm = LLM(target, config, device="cpu", adaptive_drafting=False)
    params = [SamplingParams(temperature=t, seed=i, max_tokens=20) for i, t in enumerate((0.0, 0.7, 0.0, 1.2, 0.0))]
    together, greedy = tokens(llm.generate(PROMPTS, params)), plain(PROMPTS, params)
    assert [together[i] for i in (0, 2, 4)] == [greedy[i] for i in (0, 2, 4)]


VARIANTS = {"dflash2": DFLASH2, "lilicorr": LILICORR, "xpress": XPRESS, "domino": DOMINO}
DRAWN = [(method, "greedy") for method in VARIANTS] + [(m, "probabilistic") for m in VARIANTS if m != "xpress"]


@pytest.mark.parametrize(("method", "sampling"), DRAWN)
def test_every_variant_leaves_greedy_text_alone(method: str, sampling: str, tiny_llama, tmp_path) -> None:
    target, place = tiny_llama(0, vocab_size=VOCAB)
    config = VARIANTS[method] | {"num_target_layers": 2}
    config["dflash_config"] = config["dflash_config"] | {"target_layer_ids": [0, 1]}
    block = {
        "method": method,
        "model": str(save(tmp_path, config, tensors_of(method, config))),
        "num_speculative_tokens": 4,
        "draft_sample_method": sampling,
    }
    document = {"target": {"model": place, "max_model_len": 96}, "engine": {"max_num_seqs": 4}, "speculative": block}
    settings = specdec.resolve(document, target_config=target.config.to_dict()).unwrap()
    drafting = LLM(target, settings, device="cpu", adaptive_drafting=False)
    alone = LLM(target, device="cpu", max_model_len=96)
    params = [SamplingParams(temperature=t, seed=i, max_tokens=20) for i, t in enumerate((0.0, 0.7, 0.0, 1.2, 0.0))]
    together, greedy = tokens(drafting.generate(PROMPTS, params)), tokens(alone.generate(PROMPTS, params))
    assert [together[i] for i in (0, 2, 4)] == [greedy[i] for i in (0, 2, 4)]
    assert together == [tokens(drafting.generate([p], q))[0] for p, q in zip(PROMPTS, params, strict=True)]
