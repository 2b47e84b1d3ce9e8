"""`specdec generate` on a tiny checkpoint with a tokenizer: inputs, outputs, comparisons, errors, interruptions."""

from __future__ import annotations

import io
import json
import sys

import pytest

from specdec.cli.generate import json_text
from specdec.cli.main import entry
from specdec.engine.core import Engine

RUN = """schema_version: 1
target: {{model: {folder}, max_model_len: 64, dtype: float32}}
speculative: {{method: ngram, num_speculative_tokens: 3, prompt_lookup_min: 1, prompt_lookup_max: 2}}
sampling: {{temperature: 0.0, max_tokens: 12}}
"""


@pytest.fixture
def run_file(checkpoint, tmp_path, monkeypatch):
    """run.yaml in the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN.format(folder=checkpoint), encoding="utf-8")
    return tmp_path / "run.yaml"


@pytest.fixture
def generate(specdec, run_file):
    return lambda *args: specdec("generate", run_file, *args)


def test_text_goes_to_stdout_and_numbers_to_stderr(generate):
    result = generate("--prompt", "w1 w2 w1 w2")
    assert result.code == 0 and len(result.out.split()) == 12
    for words in ("ngram", "tokens/s", "mean accepted length", "acceptance per position"):
        assert words in result.err
    assert generate("--prompt", "w1 w2 w1 w2", "--quiet").err == ""


def test_json_gives_one_object_a_request_with_speculation_metrics(generate, run_file):
    (run_file.parent / "prompts.jsonl").write_text(
        '"w1 w2 w1 w2"\n\n{"prompt": "w3"}\n{"messages": [{"role": "user", "content": "w5"}]}\n'
        '{"prompt_token_ids": [1, 2, 3]}\n{"turns": ["w9 w9", "unused"]}\n'
    )
    result = generate("--prompts", "prompts.jsonl", "--json")
    records = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 0 and len(records) == 5
    assert [r["num_prompt_tokens"] for r in records] == [5, 2, 2, 3, 3]  # the template adds w7, ids stay as they are
    for record in records:
        (completion,) = record["outputs"]
        assert len(completion["token_ids"]) == 12 and completion["finish_reason"] == "length"
        metrics = completion["metrics"]
        assert metrics["emitted"] == 12 == metrics["steps"] + metrics["verifier_accepted"]
        assert metrics["tokens_per_second"] > 0 and {"drafted", "acceptance_per_position"} <= set(metrics)


def test_overrides_raw_and_the_baseline(generate):
    def tokens(*args):
        return json.loads(generate("--prompt", "w1 w2 w1 w2", "--json", *args).out)

    chat, raw = tokens(), tokens("--raw")
    assert (chat["num_prompt_tokens"], raw["num_prompt_tokens"]) == (5, 4)
    wide = tokens("speculative.num_speculative_tokens=5", "sampling.max_tokens=20")
    assert (
        wide["outputs"][0]["token_ids"][:12] == chat["outputs"][0]["token_ids"]
        and len(wide["outputs"][0]["token_ids"]) == 20
    )
    plain = tokens("--no-speculation")
    assert plain["outputs"][0]["token_ids"] == chat["outputs"][0]["token_ids"]
    assert plain["outputs"][0]["metrics"]["drafted"] == 0


def test_standard_input_is_one_prompt(generate, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("w1\nw2\n"))
    assert json.loads(generate("--json").out)["num_prompt_tokens"] == 3


def test_several_completions_and_prompts_are_numbered(generate):
    result = generate("--prompt", "w1", "--prompt", "w2", "sampling.n=2", "sampling.temperature=1.0")
    assert result.code == 0 and result.out.count("[1]") == 2 and result.out.count("[2]") == 2


def test_compare_shows_both_runs_side_by_side(generate):
    result = generate("--prompt", "w1 w2 w1 w2", "--compare")
    assert result.code == 0 and len(result.out.split()) == 12  # the text once
    assert "ngram" in result.err and "no speculation" in result.err and "speed-up" in result.err
    assert "same text in 1 of 1" in result.err


def test_lossy_verification_is_labelled(generate):
    rates = "speculative.synthetic_acceptance_rates=[1.0,1.0,1.0]"
    result = generate("--prompt", "w1 w2 w1 w2", "speculative.rejection_sample_method=synthetic", rates)
    assert result.code == 0 and "LOSSY" in result.err and "lossy-method" in result.err


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--prompts", "absent.jsonl"], 2, "no file 'absent.jsonl'"),
        (["--prompts", "bad.jsonl"], 2, "bad.jsonl:2: not JSON"),
        (["--prompts", "empty.jsonl"], 2, "no prompt in empty.jsonl"),
        (["--prompts", "keys.jsonl"], 2, "keys.jsonl:1: no prompt; the object needs one of"),
        (["--prompt", "w1", "target.model=./nowhere"], 1, "target.model './nowhere' is no directory"),
        (["--prompt", "w1", "sampling.top_pp=0.5"], 1, "did you mean 'sampling.top_p'?"),
        (["--prompt", "w1", "sampling.min_tokens=9", "sampling.max_tokens=5"], 1, "min_tokens is 9"),
        (["--prompt", "w1 " * 70], 1, "the prompt has 71 tokens, but max_model_len is 64"),
        (["--prompt", "w1", "sampling.num_speculative_tokens=9"], 1, "num_speculative_tokens is 9"),
        (["--prompt", "w1", "sampling.stop_token_ids=[99]"], 1, "stop_token_ids"),
        (["--prompt", "w1", "engine.device=cuda:7"], 1, "device"),
        (["--prompt", "w1", "target.tensor_parallel_size=2"], 1, "which the embedded engine cannot do"),
        (["--prompt", "w1", "target.max_model_len=4000"], 1, "4000"),
        (["other.yaml", "--prompt", "w1"], 2, "one file at a time"),
    ],
)  # fmt: skip
def test_bad_input_ends_in_a_message(generate, run_file, args, code, words):
    (run_file.parent / "bad.jsonl").write_text('{"prompt": "w1"}\nw2\n')
    (run_file.parent / "keys.jsonl").write_text('{"question": "w1"}\n')
    (run_file.parent / "empty.jsonl").write_text("\n")
    (run_file.parent / "other.yaml").write_text("schema_version: 1\n")
    result = generate(*args)
    assert result.code == code and words in result.err and "Traceback" not in result.err
    assert result.out.strip() == ""


def test_one_bad_request_does_not_take_the_others_down(generate, run_file):
    (run_file.parent / "prompts.jsonl").write_text('"w1"\n{"prompt_token_ids": [999]}\n"w2"\n')
    result = generate("--prompts", "prompts.jsonl", "--json")
    records = [json.loads(line)["outputs"][0] for line in result.out.splitlines()]
    assert result.code == 1 and "token id 999" in result.err
    assert [len(r["token_ids"]) for r in records] == [12, 0, 12]
    assert records[1]["finish_reason"] == "error" and "token id 999" in records[1]["error"]


def test_text_that_cannot_be_encoded_is_escaped(run_file, monkeypatch, capsys):
    (run_file.parent / "prompts.jsonl").write_text('"w1 \\ud800"\n"w2"\n')
    assert leave(monkeypatch, run_file, "--prompts", "prompts.jsonl", "--json") == 1
    bad, good = map(json.loads, capsys.readouterr().out.splitlines())
    assert "TextEncodeInput" in bad["outputs"][0]["error"] and len(good["outputs"][0]["token_ids"]) == 12
    assert json_text({"a": "é"}, "ascii") == '{"a": "\\u00e9"}' and json_text({"a": "é"}, "utf-8") == '{"a": "é"}'


def test_a_planned_method_is_refused_with_the_ways_out(specdec, project):
    result = specdec("generate", "run.yaml", "--prompt", "x", "speculative=medusa", "~speculative.model")
    assert result.code == 1 and "Traceback" not in result.err


def leave(monkeypatch, *args):
    """Run the console script in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["specdec", "generate", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        entry()
    return stop.value.code


def test_ctrl_c_ends_quietly_and_aborts(run_file, monkeypatch, capsys):
    engines = []
    step = Engine.step

    def interrupted(engine):
        engines.append(engine)
        if len(engines) > 3:
            raise KeyboardInterrupt
        return step(engine)

    monkeypatch.setattr(Engine, "step", interrupted)
    assert leave(monkeypatch, run_file, "--prompt", "w1", "--prompt", "w2", "--json") == 130
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.strip() == "interrupted"
    assert not engines[-1].has_unfinished


class ClosedPipe(io.StringIO):
    """A standard output whose reader went away after a few characters."""

    def __init__(self, file):
        super().__init__()
        self.file, self.room = file, 20

    def write(self, text):
        self.room -= len(text)
        if self.room < 0:
            raise BrokenPipeError
        return len(text)

    def fileno(self):
        return self.file.fileno()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_ends_quietly(form, run_file, monkeypatch, capsys, tmp_path):
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", ClosedPipe(file))
        assert leave(monkeypatch, run_file, "--prompt", "w1", *form) == 2
    assert capsys.readouterr().err == ""


def test_progress_of_many_prompts_is_on_stderr_only(generate, run_file, monkeypatch):
    from specdec.cli import progress

    monkeypatch.setattr(progress, "EVERY", 0.0)  # a line after every step
    (run_file.parent / "prompts.jsonl").write_text('"w1 w2 w1 w2"\n"w3 w4 w3 w4"\n')
    result = generate("--prompts", "prompts.jsonl")
    assert "ngram: 2/2 requests, " in result.err and ", acceptance 0." in result.err
    assert "requests" not in result.out and result.out.startswith("[1] ")
    assert generate("--prompts", "prompts.jsonl", "--quiet").err == ""
    assert "no speculation: 2/2 requests" in generate("--prompts", "prompts.jsonl", "--compare").err
