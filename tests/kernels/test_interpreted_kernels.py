"""Every Triton kernel equals its reference under the interpreter.

The interpreter is chosen when triton is first imported, so these checks have a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = sorted((Path(__file__).parent / "interpreted").glob("check_*.py"))


@pytest.mark.parametrize("path", CHECKS, ids=lambda p: p.stem)
def test_kernels_under_the_interpreter(path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout
