"""`specdec tune`: advice from given numbers without a model, and from a tiny model's measured ones."""

from __future__ import annotations

import json

import pytest

GIVEN = ["--acceptance", "0.844,0.599,0.41,0.2", "--draft-cost-ratio", "0.15"]


def test_given_rates_and_costs_need_no_model(specdec):
    result = specdec("tune", *GIVEN)
    assert result.code == 0 and "recommended: speculative.num_speculative_tokens=3" in result.out
    best = next(line for line in result.out.splitlines() if line.endswith("best"))
    assert best.split() == ["3", "0.410", "2.85", "1.45", "1.97x", "best"]  # 1 + .844 + .599 + .41 over 1 + 3 x .15


def test_json_and_the_largest_k(specdec):
    found = json.loads(specdec("tune", *GIVEN, "--max-k", "2", "--verify-cost-ratio", "0.05", "--json").out)
    assert (found["best_k"], len(found["choices"])) == (2, 3)
    assert found["choices"][2]["cost_per_round"] == pytest.approx(1.4)
    assert found["choices"][2]["speedup"] == pytest.approx(2.443 / 1.4)


def test_it_says_when_nothing_pays(specdec):
    assert "no speculation" in specdec("tune", "--acceptance", "0.1", "--draft-cost-ratio", "0.5").out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--acceptance", "0.5,0.6", "--draft-cost-ratio", "0.1"], "acceptance rises from 0.5 to 0.6"),
        (["--acceptance", "84", "--draft-cost-ratio", "0.1"], "outside [0, 1]"),
        (["--acceptance", "a", "--draft-cost-ratio", "0.1"], "write rates between commas"),
        (["--acceptance", "0.5", "--draft-cost-ratio", "-1"], "draft_cost_ratio -1.0 is negative"),
        (["--acceptance", "0.5"], "needs --draft-cost-ratio"),
        (["--acceptance", "0.5", "--draft-cost-ratio", "0.1", "--prompt", "x"], "works without a model"),
        (["--max-k", "0"], "--max-k is 0"),
    ],
)
def test_bad_values_end_in_a_message(specdec, args, words):
    result = specdec("tune", *args)
    assert result.code == 1 and words in result.err and result.out == ""


def test_a_model_is_measured(specdec, tmp_path):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(3)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=30, **shape, eos_token_id=None)).save_pretrained(tmp_path)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(30)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    file = tmp_path / "run.yaml"
    file.write_text(
        f"schema_version: 1\ntarget: {{model: {tmp_path}, max_model_len: 128, dtype: float32}}\n"
        f"speculative: {{method: draft_model, model: {tmp_path}, num_speculative_tokens: 2}}\n"
        "sampling: {temperature: 0.0, max_tokens: 30}\n"
    )
    result = specdec("tune", file, "--prompt", "w1 w2", "--prompt", "w3", "--max-k", "4", "--json")
    found = json.loads(result.out)
    assert result.code == 0 and found["acceptance"][0] == 1.0  # the draft is the target
    assert [c["k"] for c in found["choices"]] == [0, 1, 2, 3, 4]
    assert found["draft_cost_ratio"] > 0 and all(c["tokens_per_second"] > 0 for c in found["choices"])
    assert "error" in specdec("tune", file, "--prompt", "w1", "target.model=./nowhere").err
