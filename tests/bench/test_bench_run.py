"""The whole verb on a tiny checkpoint: its files, a peer that breaks on the way, an interrupt."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdec.bench.external import ExternalMode
from specdec.cli.main import main

PEER = """
import json, sys
for line in sys.stdin:
    q = json.loads(line)
    if q["do"] == "generate" and q["prompts"][0][0] == 5:
        sys.exit("prompt of fives")
    answer = {"token_ids": [[1] * q["max_tokens"] for _ in q["prompts"]], "seconds": 0.5} if "prompts" in q else {}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Runs ``specdec bench`` with two prompts in a folder of its own; returns (code, results.json or None)."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, eos_token_id=None, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "model")
    (tmp_path / "run.yaml").write_text(
        "schema_version: 1\ntarget: {model: ./model, max_model_len: 64, dtype: float32}\n"
        "speculative: {method: ngram, num_speculative_tokens: 2, prompt_lookup_min: 1, prompt_lookup_max: 2}\n"
    )
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "prompt": "w1 w2 w1"}\n{"id": "b", "prompt": "w5 w5"}\n')
    (tmp_path / "peer.py").write_text(PEER)
    monkeypatch.chdir(tmp_path)

    def run(*more: str):
        peer = ["--peers", "fake", "--peer-python", f"fake={sys.executable}", "--peer-script", "fake=peer.py"]
        small = ["--prompts", "prompts.jsonl", "--max-tokens", "6", "--temperatures", "0", "--output", "out"]
        code = main(["bench", "run.yaml", *small, *peer, *more])
        file = tmp_path / "out" / "results.json"
        return code, json.loads(file.read_text()) if file.exists() else None

    return run


def speeds(results, mode):
    return [(s["prompt"], s["repeat"]) for s in results["samples"] if s["mode"] == mode]


def test_a_peer_that_dies_leaves_and_the_run_ends_with_what_was_measured(bench, capsys):
    code, results = bench("--repeats", "2", "--control")
    assert code == 1
    assert speeds(results, "fake") == [("a", 0)]
    for mode in ("plain", "ngram k=2", "plain again"):
        assert sorted(speeds(results, mode)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    (failure,) = results["failures"]
    assert failure.startswith(
        "fake: its process ended with code 1; it last wrote: prompt of fives (all of it: out/fake.log"
    )
    shown = capsys.readouterr()
    assert shown.err.count("specdec bench: error: ") == 1 and "Not finished: fake: " in shown.out
    assert "Traceback" not in shown.err


def test_batches_of_peers_stand_beside_ours(bench):
    code, results = bench("--limit", "1", "--batches", "1,3", "--batch-repeats", "2", "--repeats", "1")
    assert code == 0
    found = {(t["mode"], t["batch"]): len(t["speeds"]) for t in results["throughput"]}
    assert found == {
        (mode, batch): 1 if mode == "fake" else 2 for mode in ("plain", "ngram k=2", "fake") for batch in (1, 3)
    }
    assert results["throughput"][-1]["tokens_per_second"] > 0


def test_an_interrupt_leaves_a_report(bench, monkeypatch):
    real, calls = ExternalMode.generate, []

    def generate(self, *args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(ExternalMode, "generate", generate)
    code, results = bench("--limit", "1", "--repeats", "3")
    assert code == 130 and results["failures"] == ["interrupted"]
    assert speeds(results, "fake") == [("a", 0)]


def test_a_missing_interpreter_is_one_line(bench, capsys):
    code, results = bench("--limit", "1", "--peer-python", "fake=/nowhere/python")
    assert code == 1 and speeds(results, "plain")
    assert "error: fake: '/nowhere/python' is no program that can be run" in capsys.readouterr().err
