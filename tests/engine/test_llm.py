"""LLM with configurations: blocks, files, finalized; text in and out; settings that would be ignored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec import resolve
from specdec.config.final.speculative_config import Namespace
from specdec.config.findings.diagnostics import ConfigError
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import EngineError
from specdec.speculators.k_schedule import KSchedule

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}w7"


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A checkpoint on disk with a word-level tokenizer: words w0..w60."""
    path = tmp_path_factory.mktemp("target")
    tiny("llama").save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(61)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=TEMPLATE).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def plain(folder):
    return LLM(str(folder), max_model_len=64, accelerate=False)


def test_text_in_text_out(plain):
    ids = plain.generate([3, 14, 15], GREEDY)[0].outputs[0].token_ids
    (output,) = plain.generate("w3 w14 w15", GREEDY)
    assert output.prompt_token_ids == [3, 14, 15] and output.outputs[0].token_ids == ids
    assert output.outputs[0].text.split() == [f"w{i}" for i in ids]
    streamed = list(plain.stream("w3 w14 w15", GREEDY))
    assert "".join(d.text for d in streamed) == output.outputs[0].text


def test_chat_uses_the_template(plain):
    (output,) = plain.chat([{"role": "user", "content": "w1 w2"}], GREEDY)
    assert output.prompt_token_ids == [1, 2, 7]
    assert plain.generate("w1 w2", GREEDY, use_chat=True)[0].prompt_token_ids == [1, 2, 7]
    two = plain.chat([[{"role": "user", "content": "w1"}], [{"role": "user", "content": "w2"}]], GREEDY)
    assert [o.prompt_token_ids for o in two] == [[1, 7], [2, 7]]


def test_stop_strings_and_bad_words(plain):
    words = plain.generate("w3 w14 w15", GREEDY)[0].outputs[0].text.split()
    stopped = plain.generate("w3 w14 w15", GREEDY.replace(stop=f" {words[4]}"))[0].outputs[0]
    assert stopped.finish_reason == "stop" and stopped.stop_reason == f" {words[4]}"
    assert stopped.text.split() == words[: words.index(words[4], 1)]
    other = plain.generate("w3 w14 w15", GREEDY.replace(bad_words=[words[0]]))[0].outputs[0]
    assert words[0] not in other.text.split()


def test_a_speculative_block_a_file_and_a_finalized_config_give_the_same(folder, plain, tmp_path):
    want = plain.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0].token_ids
    block = LLM(str(folder), NGRAM, max_model_len=64, accelerate=False, adaptive_drafting=False)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"schema_version: 1\ntarget: {{model: {folder}, max_model_len: 64}}\n"
        "speculative: {method: ngram, num_speculative_tokens: 3, prompt_lookup_min: 1, prompt_lookup_max: 2}\n"
    )
    for llm in (block, LLM(speculative_config=file, accelerate=False), LLM(speculative_config=block.config)):
        completion = llm.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0]
        assert completion.token_ids == want
        assert llm.max_model_len == 64 and llm.config.num_speculative_tokens == 3
    assert block.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0].speculation.drafted > 0


def test_a_resolution_a_chain_and_torch_objects(folder, plain):
    import torch

    want = plain.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0].token_ids
    resolution = resolve({"target": {"model": str(folder), "max_model_len": 64}, "speculative": NGRAM})
    lookup = {name: value for name, value in NGRAM.items() if name != "num_speculative_tokens"}
    chain = [NGRAM, {**lookup, "num_speculative_tokens": 3, "prompt_lookup_match": "leftmost"}]
    parts = {"max_model_len": 64, "accelerate": False, "dtype": torch.float32, "device": torch.device("cpu", 0)}
    for given in (resolution, NGRAM, chain):
        llm = LLM(str(folder), given, **parts)
        assert llm.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0].token_ids == want
        assert llm.target.device.type == "cpu" and llm.target.dtype == torch.float32
    with pytest.raises(ConfigError, match="num_speculative_tokens"):
        LLM(
            str(folder),
            resolve({"target": {"model": str(folder)}, "speculative": {**NGRAM, "num_speculative_tokens": 0}}),
        )
    for given in (5, 2.5, object()):
        with pytest.raises(EngineError, match=r"speculative_config is .*; allowed: the speculative: block"):
            LLM(str(folder), given)
    with pytest.raises(EngineError, match="max_model_len is 'long'; allowed: an integer"):
        LLM(str(folder), max_model_len="long")


def test_compiled_kernels_can_be_turned_off(folder, tmp_path):
    from specdec.model.accelerate import acceleration

    file = tmp_path / "run.yaml"
    file.write_text(
        f"target: {{model: {folder}, max_model_len: 64}}\nspeculative: {NGRAM}\nengine: {{compile: false}}\n"
    )
    for off in (LLM(speculative_config=file), LLM(str(folder), max_model_len=64, compile=False)):
        assert acceleration(off.target.model) is None


def test_a_block_with_a_model_in_memory(tiny):
    llm = LLM(tiny("llama"), NGRAM, max_model_len=64)
    want = LLM(tiny("llama"), max_model_len=64).generate([3, 3, 3], GREEDY)[0].outputs[0].token_ids
    assert llm.generate([3, 3, 3], GREEDY)[0].outputs[0].token_ids == want


def test_bad_configurations_carry_their_diagnostics(folder):
    with pytest.raises(ConfigError, match="prompt_lookup_min"):
        LLM(str(folder), {**NGRAM, "prompt_lookup_min": 9})
    with pytest.raises(ConfigError, match="no_such_option"):
        LLM(str(folder), {**NGRAM, "no_such_option": 1})


def test_settings_the_engine_would_ignore_are_refused(folder):
    config = LLM(str(folder), NGRAM, max_model_len=32, accelerate=False).config
    two = replace(config, engine=Namespace({**config.engine, "tensor_parallel_size": 2}))
    with pytest.raises(EngineError, match=r"engine\.tensor_parallel_size is 2.*export vllm"):
        LLM(speculative_config=two)
    with pytest.raises(EngineError, match="max_model_len is 64, but the configuration was finalized for 32"):
        LLM(speculative_config=config, max_model_len=64)


def test_verification_modes_come_from_the_configuration(folder):
    always = {**NGRAM, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [1.0, 1.0, 1.0]}
    llm = LLM(str(folder), always, max_model_len=64, accelerate=False, adaptive_drafting=False)
    counts = llm.generate("w3 w14 w3 w14", GREEDY)[0].outputs[0].speculation
    assert counts.drafted == counts.verifier_accepted > 0


def test_k_by_batch_size(folder):
    schedule = KSchedule(5, [[1, 2, 5], [3, 4, 2], [6, 8, 0]])
    assert [schedule(n) for n in (1, 2, 3, 4, 5, 6, 9)] == [5, 5, 2, 2, 2, 0, 0]
    assert KSchedule(3)(99) == 3
    block = {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 1, 3], [2, 8, 1]]}
    llm = LLM(str(folder), block, max_model_len=64, accelerate=False, adaptive_drafting=False)
    alone = llm.generate(["w3 w3 w3"], GREEDY)[0].outputs[0].speculation
    pair = llm.generate(["w3 w3 w3"] * 2, GREEDY)[0].outputs[0].speculation
    assert len(alone.drafted_per_position) == 3 and len(pair.drafted_per_position) == 1


def test_one_sampling_params_for_each_prompt(plain):
    with pytest.raises(EngineError, match="2 sampling parameters for 1 prompts"):
        plain.generate(["w1"], [GREEDY, GREEDY])
