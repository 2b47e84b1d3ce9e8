from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "scripts/gpu_check.py"


def test_without_a_gpu_it_says_so_and_ends_with_2(tmp_path):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", str(report)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no CUDA device here" in done.stderr and "Traceback" not in done.stderr
    assert not report.exists()


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_help_names_the_results(tmp_path):
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--json" in done.stdout


def test_a_failing_stage_costs_only_itself(module, tmp_path):
    def broken():
        raise RuntimeError("illegal memory access")

    rows = [{"op": "accept", "case": "R=1", "equal": True, "detail": ""}]
    report = {"device": "GPU", "torch": "2", "copy_bytes_per_s": 4e12}
    stages = {"correctness": lambda: rows, "throughput": broken, "end_to_end": lambda: {"plain": "50 tokens/s"}}
    module.run_stages(stages, report, tmp_path / "report.json", 0.0)
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["correctness"] == rows and written["end_to_end"] == {"plain": "50 tokens/s"}
    assert written["errors"] == {"throughput": "RuntimeError: illegal memory access"}
    assert "| throughput | stopped | RuntimeError: illegal memory access |" in module.render(report)


def test_stages_end_within_eight_minutes(module):
    assert list(module.SHARES) == ["correctness", "throughput", "end_to_end"]
    assert list(module.SHARES.values()) == sorted(module.SHARES.values()) and max(module.SHARES.values()) <= 7 * 60


def test_the_comparison_runs_and_finds_a_difference(module, monkeypatch):
    """On the CPU the reference is compared with itself, and then with a kernel that is off by one."""
    from benchmarks import correctness

    rows = correctness.run(quick=True, device="cpu", backends=("torch", "torch"))
    assert {row["op"] for row in rows} >= {"row_stats", "accept", "block_verify", "fused_verify", "ngram_match"}
    assert all(row["equal"] for row in rows), rows
    assert correctness.run(device="cpu", backends=("torch", "torch"), until=0.0) == []
    equal, detail = correctness._compare((torch.zeros(100).long(),), (torch.ones(100).long(),))
    assert not equal and "100.0% of ids differ" in detail


def test_the_report_is_one_table(module):
    text = module.render(
        {
            "device": "GPU", "torch": "2", "copy_bytes_per_s": 4e12, "seconds": 3,
            "correctness": [
                {"op": "accept", "case": "R=1", "equal": True, "detail": ""},
                {"op": "row_stats", "case": "R=1", "equal": False, "detail": "output 1"},
            ],
            "throughput": [{"op": "row_stats", "case": "R=1", "us": 10.0, "bytes_per_s": 2e12}],
            "end_to_end": {"plain": "50.0 tokens/s"},
        }
    )  # fmt: skip
    assert "| accept | R=1 | equal |" in text and "DIFFERS (output 1)" in text
    assert "10.0 us, 50% of copy" in text and "| end to end | plain | 50.0 tokens/s |" in text
