"""`specdec extract` on a tiny checkpoint: files, masks, a second run, a run that is killed, and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from specdec.cli.extract import resolve_extraction

RUN = """schema_version: 1
target: {{model: {folder}, max_model_len: 64, dtype: float32}}
speculative: {{method: ngram, num_speculative_tokens: 3, prompt_lookup_min: 1, prompt_lookup_max: 2}}
sampling: {{temperature: 0.0, max_tokens: 5}}
engine: {{max_num_seqs: 2, device: cpu}}
"""


@pytest.fixture
def run_file(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN.format(folder=checkpoint), encoding="utf-8")
    return tmp_path / "run.yaml"


@pytest.fixture
def extract(specdec, run_file):
    return lambda *args: specdec("extract", run_file, *args)


def write_prompts(*prompts) -> str:
    Path("prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts), encoding="utf-8")
    return "prompts.jsonl"


def shards(folder: str = "out") -> dict[str, dict]:
    return {p.stem: load_file(p) for p in sorted(Path(folder).rglob("*.safetensors"))}


def test_prompts_are_answered_and_conversations_read(extract):
    prompts = write_prompts(
        {"prompt_token_ids": [1, 2, 3]}, "w5 w6", {"prompt_token_ids": [4] * 6, "loss_mask": [0] * 3 + [1] * 3}
    )
    result = extract("--prompts", prompts, "--output", "out", "--raw", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert result.out == "out: 3 samples, 19 tokens, boundaries 0 1 2\n"
    held = shards()
    assert [held[f"hs_{i}"]["loss_mask"].tolist() for i in range(3)] == [
        [0] * 3 + [1] * 4, [0] * 2 + [1] * 4, [0] * 3 + [1] * 3,
    ]  # fmt: skip
    assert held["hs_0"]["hidden_states"].shape == (7, 3, 32)
    rows = [json.loads(line) for line in Path("out/samples.jsonl").read_text().splitlines()]
    assert {row["index"]: row["seq_len"] for row in rows} == {0: 7, 1: 6, 2: 6}


def test_prompts_are_only_read_where_wanted(extract):
    result = extract(
        "--prompt", "w1 w2 w3", "--raw", "--output", "out", "--prompt-only", "speculative.aux_layers=[1,2]"
    )
    assert result.code == 0 and "1 samples, 3 tokens, boundaries 1 2" in result.out
    held = shards()["hs_0"]
    assert held["token_ids"].tolist() == [1, 2, 3] and held["loss_mask"].tolist() == [1, 1, 1]


def test_a_second_run_makes_what_is_missing(extract):
    prompts = [{"prompt_token_ids": [n, n + 1]} for n in range(4)]
    assert extract("--prompts", write_prompts(*prompts[:2]), "--output", "out").code == 0
    times = {p: p.stat().st_mtime_ns for p in Path("out").rglob("*.safetensors")}
    result = extract("--prompts", write_prompts(*prompts), "--output", "out")
    assert result.code == 0 and "2 samples, 12 tokens, boundaries 0 1 2, 2 were there" in result.out
    assert {p: p.stat().st_mtime_ns for p in times} == times and len(shards()) == 4
    prompts[1] = {"prompt_token_ids": [9, 9]}
    other = extract("--prompts", write_prompts(*prompts), "--output", "out")
    assert other.code == 1 and "hs_1.safetensors was made of another text than prompt 1" in other.err


def test_a_prompt_that_cannot_run_is_named_and_the_others_are_made(extract):
    prompts = write_prompts({"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [500]}, {"prompt_token_ids": [3] * 70},
                            {"prompt_token_ids": [5], "loss_mask": [1, 1]}, {"prompt_token_ids": [6]})  # fmt: skip
    result = extract("--prompts", prompts, "--output", "out", "--quiet")
    assert result.code == 1 and sorted(shards()) == ["hs_0", "hs_4"]
    faults = result.err.splitlines()
    assert len(faults) == 3
    for line, words in zip(faults, ("prompt 1: the prompt holds token id 500", "prompt 2: the prompt has 70 tokens",
                                    "prompt 3: loss_mask has 2 values"), strict=True):  # fmt: skip
        assert line.startswith("specdec extract: error: " + words)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--prompt", "w1", "--output", "out", "speculative.aux_layers=[9]"], 1, "layer-id-out-of-range"),
        (["--prompt", "w1", "--output", "out", "speculative.output_layout=other"], 1, "speculators or specforge"),
        (["--prompts", "absent.jsonl", "--output", "out"], 2, "no file 'absent.jsonl'"),
        (["--prompt", "w1", "--output", "run.yaml"], 1, "run.yaml"),
        (["--prompt", "w1", "--output", "out", "sampling.n=2"], 1, "n is 2"),
        (["--prompt", "w1"], 2, "--output"),
    ],
)
def test_refusals_are_one_message(extract, args, code, says):
    result = extract(*args)
    assert result.code == code and says in result.err and "Traceback" not in result.err


@pytest.mark.parametrize(
    ("block", "code", "says"),
    [
        ("{method: extract_hidden_states, aux_layers: [2]}", 0, "boundaries 2"),
        ("{method: extract-hidden-states}", 1, "did you mean 'extract_hidden_states'"),
        ("{num_speculative_tokens: 4}", 0, "boundaries 0 1 2"),
        ("{method: nothing_like_it}", 1, "unknown-method"),
        ("[{method: ngram}, {method: suffix}]", 2, "lists a chain"),
        ("[", 1, "yaml-syntax"),
    ],
)
def test_what_the_file_says_about_speculation(extract, run_file, block, code, says):
    lines = run_file.read_text().splitlines()
    lines[2] = f"speculative: {block}"
    run_file.write_text("\n".join(lines))
    result = extract("--prompt", "w1", "--raw", "--prompt-only", "--output", "out", "--quiet")
    assert result.code == code and says in result.out + result.err and "Traceback" not in result.err


def test_a_killed_run_loses_at_most_what_it_was_writing(extract, run_file, tmp_path):
    prompts = write_prompts(*({"prompt_token_ids": [n % 50 + 1, n % 7 + 1]} for n in range(60)))
    command = [sys.executable, "-m", "specdec", "extract", str(run_file), "--prompts", prompts, "--output", "out"]
    command.append("sampling.max_tokens=30")
    folder = tmp_path / "out" / "hidden_states"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ.copy())
    try:
        end = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < end and len(list(folder.glob("hs_*.safetensors"))) < 3:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        errors = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, errors.decode()
    first = shards()  # every file that is there is whole
    assert 3 <= len(first) < 60
    assert len(list(folder.glob(".*.part"))) <= 1
    result = extract("--prompts", prompts, "--output", "out", "--quiet", "sampling.max_tokens=30")
    assert result.code == 0 and f"{len(first)} were there" in result.out
    held = shards()
    assert sorted(held) == sorted(f"hs_{n}" for n in range(60)) and not list(folder.glob(".*.part"))
    rows = [json.loads(line) for line in Path("out/samples.jsonl").read_text().splitlines()]
    assert sorted(row["index"] for row in rows) == list(range(60))
    for row in rows:
        assert row["input_ids"] == held[Path(row["file"]).stem]["token_ids"].tolist()
        assert row["input_ids"][:2] == [row["index"] % 50 + 1, row["index"] % 7 + 1]


def test_without_a_file_the_packaged_default_gives_the_target():
    config = resolve_extraction(["sampling.max_tokens=3"], "some/folder").unwrap()
    assert (config.record.capabilities["proposes_draft_tokens"], config.options.output_dir) == (False, "some/folder")
    assert config.target.model == "SmolLM2-135M-Instruct" and config.sampling.max_tokens == 3
