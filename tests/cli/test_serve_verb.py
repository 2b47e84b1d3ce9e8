"""serve: starts the exported command, refuses what export refuses, says when the engine is missing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys


def test_dry_run_prints_the_command(specdec, project):
    result = specdec("serve", "--engine", "vllm", "run.yaml", "--dry-run")
    assert result.code == 0 and result.out.startswith("vllm serve ./target")


def test_missing_engine_is_one_line(specdec, project, monkeypatch):
    monkeypatch.setenv("PATH", str(project))
    result = specdec("serve", "--engine", "vllm", "run.yaml")
    assert result.code == 2 and "'vllm' is not installed" in result.err


def test_refused_configs_do_not_start(specdec, project):
    result = specdec("serve", "--engine", "vllm", "run.yaml", "sampling.min_p=0.1")
    assert result.code == 1 and "min_p" in result.err


def test_the_engine_replaces_the_process(project):
    fake = project / "vllm"
    fake.write_text('#!/bin/sh\necho "started: $@"\nexit 7\n')
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    path = f"{project}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "specdec", "serve", "--engine", "vllm", "run.yaml"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path}, cwd=project, check=False
    )
    assert done.returncode == 7 and "started: serve ./target" in done.stdout
