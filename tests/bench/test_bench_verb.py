"""Bad arguments of ``specdec bench`` end in one message and a non-zero exit, before anything is loaded."""

from __future__ import annotations

import pytest

from specdec.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--peers", "nobody"], 2, "there are: transformers, transformers-float32, lookup, flashspec, vllm, none"),
        (["--peers", "no/body"], 2, "'no/body' is no name of a peer"),
        (["--peers", "vllm-f32"], 2, "--peer-python vllm=/path/to/python"),
        (["--peer-python", "vllm"], 2, "'vllm' is not NAME=VALUE"),
        (["--max-tokens", "0"], 2, "0 is below 1"),
        (["--temperatures", "-1"], 2, "at least 0"),
        (["--prompts", "/nonexistent.jsonl"], 2, "/nonexistent.jsonl cannot be read"),
        (["a.yaml", "b.yaml"], 2, "one file at a time"),
        (["absent.yaml"], 2, "absent.yaml"),
        (["speculative.num_speculative_tokens=lots"], 1, "num_speculative_tokens"),
        (["speculative=eagle9"], 1, "eagle9"),
    ],
)
def test_bad_input(capsys, arguments, code, message):
    assert main(["bench", *arguments]) == code
    assert message in capsys.readouterr().err
