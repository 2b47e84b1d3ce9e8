"""Kernels are compiled while the caller goes on, once, and given up with the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from specdec_kernels.cpu import build


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that notes its calls, waits for the file ``go``, then writes its output."""
    script = tmp_path / "cxx"
    script.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && echo one && exit 0
echo call >> {tmp_path}/calls
while [ ! -e {tmp_path}/go ]; do sleep 0.02; done
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path


def wait_for(path):
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


def test_build_waits_for_the_compilation_that_runs(compiler):
    build.build_in_background()
    wait_for(compiler / "calls")
    threading.Timer(0.1, (compiler / "go").touch).start()
    library = build.build()
    assert library.read_text() == "library\n" and (compiler / "calls").read_text() == "call\n"
    assert build.build() == library and list(library.parent.iterdir()) == [library]


def test_a_process_that_ends_leaves_no_compiler_and_no_file_behind(compiler):
    script = f"""
import sys, time
from pathlib import Path
from specdec_kernels.cpu.build import build_in_background
build_in_background()
while not Path({str(compiler / "calls")!r}).exists():
    time.sleep(0.01)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((compiler / "cache" / "cpu").iterdir()) == []


def test_a_failure_in_the_background_is_told_when_the_kernels_are_wanted(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    build.build_in_background()
    with pytest.raises(build.NativeUnavailable, match="no C\\+\\+ compiler"):
        build.build()
    assert capfd.readouterr().err == ""
