from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

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


def test_the_report_is_one_table():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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
