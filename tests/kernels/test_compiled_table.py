"""The table of registers and spills: complete, without spills, and not far from what this Triton compiles now."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/compile_kernels.py"
RECORD = json.loads((ROOT / "kernels/COMPILED.json").read_text())


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compile_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_variant_is_recorded_for_every_architecture(script):
    assert set(RECORD["kernels"]) == {name for name, *_ in script.variants()}
    for row in RECORD["kernels"].values():
        assert set(row) == {"warps", *(f"sm_{a}" for a in script.ARCHITECTURES)}


def test_every_kernel_function_is_compiled(script):
    import ast

    compiled = {kernel.__name__ for _, kernel, *_ in script.variants()}
    launched = set()
    for path in (ROOT / "kernels/specdec_kernels").glob("*/triton.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            # a launch reads kernel[grid](...)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                launched.add(node.func.value.id)
    assert launched == compiled


def test_no_kernel_spills():
    for name, row in RECORD["kernels"].items():
        for target, usage in row.items():
            if target != "warps":
                assert usage["spills"] == 0 and usage["registers"] <= 255, (name, target)


def test_the_readable_table_is_the_record(script):
    assert (ROOT / "kernels/COMPILED.md").read_text() == script.table(RECORD["kernels"], RECORD["triton"])


@pytest.mark.parametrize(("only", "arch"), [("full q bf16", 90), ("accept", 80), ("fused_verify bf16", 100)])
def test_compiling_now_gives_about_the_same(only, arch):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), "--arch", str(arch), "--only", only]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout)
    assert results
    for name, row in results.items():
        now, then = row[f"sm_{arch}"], RECORD["kernels"][name][f"sm_{arch}"]
        assert now["spills"] == 0, name
        assert abs(now["registers"] - then["registers"]) <= max(24, then["registers"] // 2), (name, now, then)
