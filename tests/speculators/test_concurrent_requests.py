"""200 requests at once, with aborts, bad ones and mixed parameters: each gets what it gets alone."""

from __future__ import annotations

import random
import threading

import pytest

from specdec import resolve
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams

LOOKUP = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
METHODS = ["ngram", "suffix", "draft_model", "draft_model probabilistic", "chain"]
CALLERS, KINDS, COPIES = 4, 25, 8  # 200 requests
BAD = [([], "is empty"), ([3, 60], "token id 60"), ("words", "no tokenizer"), ([1] * 64, "max_model_len")]


@pytest.fixture(scope="module")
def engine(tiny_llama):
    (target, place), draft = tiny_llama(0), tiny_llama(5)[1]
    model = {"method": "draft_model", "num_speculative_tokens": 3, "model": draft}
    blocks = {
        "ngram": LOOKUP,
        "suffix": {"method": "suffix", "num_speculative_tokens": 3},
        "draft_model": model,
        "draft_model probabilistic": {**model, "draft_sample_method": "probabilistic"},
        "chain": [LOOKUP, model],
    }

    def make(name: str) -> LLM:
        document = {"target": {"model": place, "max_model_len": 64}, "speculative": blocks[name]}
        document["engine"] = {"max_num_seqs": 16, "max_num_batched_tokens": 64}
        return LLM(target, resolve(document, target_config=target.config.to_dict()).unwrap(), device="cpu")

    return make


def kinds(choose: random.Random) -> list[tuple[list[int], SamplingParams]]:
    """Prompts and parameters that differ in everything a batch could mix up."""
    out = []
    for i in range(KINDS):
        prompt = [choose.randrange(60) for _ in range(choose.choice((1, 2, 5, 9, 40)))] * choose.choice((1, 1, 2))
        extra = choose.choice(
            (
                {"temperature": 0.0},
                {"temperature": 0.0, "repetition_penalty": 1.3},
                {"top_k": 5, "logit_bias": {7: 4.0}},
                {"top_p": 0.8, "stop_token_ids": list(range(6))},
                {"min_p": 0.05, "frequency_penalty": 0.5, "bad_words_token_ids": [[4], [9, 9]]},
                {"num_speculative_tokens": 1, "allowed_token_ids": list(range(30))},
                {"logprobs": 2, "n": 2},
            )
        )
        params = {"temperature": choose.choice((0.6, 1.0)), "seed": i, "max_tokens": choose.randrange(1, 12), **extra}
        out.append((prompt[:50], SamplingParams(**params)))
    return out


def texts(output) -> list[list[int]]:
    assert output.error is None
    return [completion.token_ids for completion in output.outputs]


@pytest.mark.parametrize("name", METHODS)
def test_two_hundred_requests_equal_their_solo_runs(name, engine):
    llm, choose = engine(name), random.Random(name)
    wanted = kinds(choose)
    alone = [texts(llm.generate([prompt], params)[0]) for prompt, params in wanted]
    results: list[tuple[int, object]] = []
    refused: list[tuple[str, object]] = []

    def caller(number: int) -> None:
        mine, chance = [i for i in range(KINDS) for _ in range(COPIES // CALLERS)], random.Random(number)
        chance.shuffle(mine)
        handles = []
        for i in mine:
            handles.append((i, llm.submit(*wanted[i])))
            if chance.random() < 0.15:
                handles[-1][1].cancel(wait=chance.random() < 0.5)
            if chance.random() < 0.15:
                bad, words = chance.choice(BAD)
                refused.append((words, llm.submit(bad, SamplingParams()).result()[0].error))
        for i, handle in handles:
            for _ in handle if chance.random() < 0.1 else ():
                break  # which ends the request
            results.append((i, handle.result()[0]))

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == KINDS * COPIES and len(refused) > 10
    assert all(words in str(error) for words, error in refused)
    ended = 0
    for i, output in results:
        for completion, tokens in zip(output.outputs, alone[i], strict=True):
            if completion.finish_reason == "abort":
                ended += 1
                assert completion.token_ids == tokens[: len(completion.token_ids)]
            else:
                assert completion.token_ids == tokens and completion.error is None
    assert 5 < ended < len(results) / 2
    assert not llm.engine.has_unfinished and llm.engine.states.num_free == 16
    assert [texts(llm.generate([prompt], params)[0]) for prompt, params in wanted[:3]] == alone[:3]
    llm.close()
