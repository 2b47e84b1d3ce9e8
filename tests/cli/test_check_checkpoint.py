"""`scripts/check_checkpoint.py` on Medusa heads that fit a tiny target, on heads that do not, and on broken ones."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAFTERS = Path(os.environ.get("SPECDEC_DRAFTERS", ROOT.parent / "shared" / "data" / "drafters"))
K = 3
PROMPTS = [list(range(1, 9)), [5, 6, 7], [20, 21, 22, 23], [40] * 6]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("check_checkpoint", ROOT / "scripts" / "check_checkpoint.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


CHECK = script()


@pytest.fixture(scope="module")
def made(checkpoint, tmp_path_factory) -> dict[str, Path]:
    """Folders: heads that fit, heads of random noise, heads without a tensor, and a file of prompts."""
    import torch
    from safetensors.torch import save_file
    from state_heads import medusa_weights, trajectory
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(checkpoint, dtype="float32").eval()
    _, states, following = trajectory(model, PROMPTS, 24, K)
    good = medusa_weights(states, following)
    # never an id that the target emits
    bad = {name: torch.randn_like(t) if name.endswith("1.weight") else t for name, t in good.items()}
    folders = {}
    for name, tensors in {
        "good": good,
        "bad": bad,
        "lacking": {n: t for n, t in good.items() if n != "1.1.weight"},
    }.items():
        folders[name] = tmp_path_factory.mktemp(name)
        (folders[name] / "config.json").write_text(json.dumps({"medusa_num_heads": K, "medusa_num_layers": 1}))
        save_file(tensors, folders[name] / "model.safetensors")
    folders["prompts"] = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [json.dumps({"prompt": " ".join(f"w{t}" for t in prompt)}) for prompt in PROMPTS]
    folders["prompts"].write_text("\n".join(lines))
    return folders


@pytest.fixture
def check(made, checkpoint, capsys) -> Callable[..., SimpleNamespace]:
    def run(name: str, *args: str) -> SimpleNamespace:
        fixed = ["target.dtype=float32", "engine.device=cpu", "--raw", "--max-tokens", "24"]
        code = CHECK.main(
            [str(made.get(name, name)), str(checkpoint), "--prompts", str(made["prompts"]), *fixed, *args]
        )
        out = capsys.readouterr()
        return SimpleNamespace(code=code, out=out.out, err=out.err)

    return run


def test_heads_that_fit(check):
    result = check("good")
    assert result.code == 0, result.out + result.err
    assert "medusa · Medusa" in result.out and "nothing is published for this target" in result.out
    rows = [line.split() for line in result.out.partition("position  drafts")[2].splitlines()[1 : K + 1]]
    assert [row[0] for row in rows] == ["1", "2", "3"] and float(rows[0][2]) > 0.5
    assert result.out.splitlines()[-1].startswith("verdict: drafts are accepted (")


def test_a_figure_to_compare_with(check):
    assert check("good", "--expected", "0.3,0.3,0.3").out.endswith(
        "verdict: as expected at every position, within its error\n"
    )
    low = check("bad", "--expected", "0.95,0.9")
    assert low.code == 1 and "expected: 2.80, --expected" in low.out and "was trained for another fine-tune" in low.out


def test_heads_that_do_not_fit(check):
    result = check("bad")
    assert result.code == 1 and "verdict: almost nothing is accepted" in result.out


@pytest.mark.parametrize(
    ("name", "args", "code", "says"),
    [
        ("lacking", (), 1, "no tensor lm_heads.1.weight"),
        ("good", ("--k", "9"), 1, "k-exceeds-heads"),
        ("good", ("--method", "eagle"), 1, "method-checkpoint-mismatch"),
        ("/nowhere/at/all", (), 1, "/nowhere/at/all"),
        ("good", ("--prompts", "absent.jsonl"), 2, "absent.jsonl"),
        ("good", ("--expected", "2,a"), 2, "expected acceptance cannot be read"),
    ],
)
def test_refusals(check, name, args, code, says):
    result = check(name, *args)
    assert result.code == code and says in result.err and "Traceback" not in result.err


def counts(*per_position: tuple[int, int]) -> Any:
    accepted, reached = [a for a, _ in per_position], [n for _, n in per_position]
    mean = 1 + sum(accepted) / reached[0]
    return SimpleNamespace(accepted_per_position=accepted, reached_per_position=reached, mean_accepted_length=mean)


@pytest.mark.parametrize(
    ("measured", "expected", "fine", "says"),
    [
        (counts((2, 100), (1, 2)), CHECK.Expectation("x", 3.0), False, "almost nothing"),
        (counts((60, 100), (30, 60)), CHECK.Expectation("x", 1.9, [0.62, 0.5]), True, "as expected"),
        (
            counts((60, 100), (30, 60)),
            CHECK.Expectation("x", 2.4, [0.9, 0.6]),
            False,
            "position 1 accepts 0.600 of 100",
        ),
        (counts((60, 100), (3, 60)), CHECK.Expectation("x", 1.9, [0.62, 0.5]), False, "position 2"),
        (
            counts((60, 100), (0, 2)),
            CHECK.Expectation("x", 2.2, [0.6, 1.0]),
            True,
            "as expected",
        ),  # two drafts say little
        (counts((60, 100), (0, 30)), CHECK.Expectation("x", 2.2, [0.6, 1.0]), False, "position 2"),
        (counts((60, 100), (30, 60)), CHECK.Expectation("x", 2.2), True, "in line with the published 2.20"),
        (counts((30, 100), (3, 30)), CHECK.Expectation("x", 3.6), False, "1.33 tokens per round, where 3.60"),
        (counts((10, 100), (1, 10)), None, False, "few drafts"),
        (counts((30, 100), (1, 30)), None, True, "no published figure"),
    ],
)
def test_verdicts(measured, expected, fine, says):
    got, text = CHECK.judge(measured, expected)
    assert got is fine and says in text


def test_where_the_expected_figure_comes_from(tmp_path):
    rows = ({"target": "Qwen3-4B", "prompts": "GSM8K", "tokens_per_round": 5.0, "source": "a"},
            {"target": "Qwen3-4B", "prompts": "MT-Bench", "tokens_per_round": 2.4, "source": "b"},
            {"target": "Qwen3-8B", "prompts": "GSM8K", "tokens_per_round": 2.0, "source": "c"})  # fmt: skip
    record = SimpleNamespace(expected_acceptance=rows)
    config = SimpleNamespace(record=record, draft={"verifier": None}, num_speculative_tokens=2)
    args = SimpleNamespace(draft=str(tmp_path), target="Qwen/qwen3-4b", expected=None, prompts=None)
    found = CHECK.expectation(args, config)
    assert (found.source, found.tokens_per_round, found.prompts, found.conditional) == ("b", 2.4, "MT-Bench", None)
    held = {"ten kinds": {"k=2": {"tokens_per_round": 1.5, "conditional_acceptance": [0.4, 0.25]}}}
    (tmp_path / "acceptance.json").write_text(json.dumps(held))
    assert CHECK.expectation(args, config).conditional == [0.4, 0.25]
    args.expected = "0.5,0.5"
    assert CHECK.expectation(args, config).tokens_per_round == 1.75
    args.expected, args.target, config.num_speculative_tokens = None, "other", 3
    assert CHECK.expectation(args, config) is None
    config.draft["verifier"] = "Qwen/Qwen3-8B"
    assert CHECK.expectation(args, config).source == "c"


if (DRAFTERS / "smollm2-135m-dspark").is_dir():  # 23 MB of weights are not part of the project

    def test_a_trained_draft(tmp_path, capsys):
        lines = (ROOT / "specdec" / "bench" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
        (tmp_path / "two.jsonl").write_text("\n".join(lines[:2]), encoding="utf-8")
        folder = str(DRAFTERS / "smollm2-135m-dspark")
        args = ["--prompts", str(tmp_path / "two.jsonl"), "--max-tokens", "40", "--expected", "0.2,0.2"]
        code = CHECK.main([folder, "SmolLM2-135M-Instruct", "target.max_model_len=512", "engine.device=cpu", *args])
        out = capsys.readouterr().out
        assert (
            code == 0 and "DSpark" in out and out.endswith("verdict: as expected at every position, within its error\n")
        )
