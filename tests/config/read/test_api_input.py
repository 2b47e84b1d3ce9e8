"""Whatever ``resolve`` is given through Python: findings, never an exception, in little time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import specdec

NGRAM = {"speculative": {"method": "ngram", "num_speculative_tokens": 3}}


def cyclic(width):
    made: dict = {}
    for i in range(width):
        made[f"k{i}"] = made
    return made


def shared(depth):
    value: object = 1
    for _ in range(depth):
        value = {"a": value, "b": value}
    return value


@pytest.mark.parametrize(
    "document, code",
    [
        (cyclic(1), "wrong-type"), (cyclic(3), "wrong-type"), ({**NGRAM, "metadata": cyclic(2)}, "wrong-type"),
        ({**NGRAM, "metadata": shared(30)}, "wrong-type"), ({**NGRAM, "metadata": [[]] * 10**6}, "wrong-type"),
        ({"speculative": {"method": "ngram", "num_speculative_tokens": 10**400}}, "wrong-type"),
        ({"speculative": {"method": "ngram", "num_speculative_tokens": 2**63}}, "wrong-type"),
        ({**NGRAM, "engine": {"seed": -(2**70)}}, "wrong-type"), ({**NGRAM, "": 1}, "unknown-key"),
        (5, "wrong-type"), ([1], "wrong-type"), (object(), "wrong-type"), (b"x", "wrong-type"), ("", "is-a-directory"),
        ({"speculative": {"method": "\ud800"}}, "unknown-method"), ({"speculative": [[]]}, "wrong-type"),
    ],
)  # fmt: skip
def test_documents(document, code):
    resolution = specdec.resolve(document)
    assert resolution.config is None and code in [d.code for d in resolution.errors]
    assert all(len(d.message) < 400 for d in resolution.errors)


def test_the_home_of_nobody():
    assert "checkpoint-not-found" in [
        d.code for d in specdec.resolve({"target": {"model": "~nosuchuser/x"}, **NGRAM}).diagnostics
    ]


@pytest.mark.parametrize(
    "overrides",
    [5, [None], [""], ["="], ["a" * 10**5 + "=1"], ["engine.seed=[" + "1," * 5000 + "1]"], [b"x"], {"a": 1}],
)
def test_overrides(overrides):
    assert specdec.resolve(NGRAM, overrides).errors


@pytest.mark.parametrize("value", [5, [], "x", {"a": float("nan")}, {"num_hidden_layers": 10**30}, {5: 6}, cyclic(2)])
@pytest.mark.parametrize("name", ["target_config", "draft_config", "target_tensors", "draft_tensors"])
def test_checkpoints_as_data(name, value):
    specdec.resolve({"speculative": {"method": "eagle3"}}, **{name: value})


def test_hostile_values_take_no_time():
    code = (
        "import time, specdec; d = {'speculative': {'method': 'ngram', 'num_speculative_tokens': 3}}; t = time.process_time();"
        "specdec.resolve(d, ['target.tensor_parallel_size=4611686018427387904']);"
        "specdec.resolve(d, ['engine.seed=[' + '1,' * 5000 + '1]']);"
        "specdec.resolve(d, target_tensors={'x': [10**40] * 3000}); print(time.process_time() - t)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and json.loads(done.stdout) < 20, done.stderr  # seconds; a hang is minutes
