"""Kernels are compiled while the caller goes on, once, and given up with the process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from specdec_kernels.cpu import build


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that notes its calls, waits for the file ``go``, then writes its output."""
    script = tmp_path / "cxx"
    script.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && echo one && exit 0
[ -e {tmp_path}/full ] && echo "kernels.cpp: In function" >&2 && echo "ld: No space left on device" >&2 && exit 1
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


def damage_by(name):
    """What may have become of a kept library."""
    return {
        "truncated": lambda path: os.truncate(path, 3),
        "empty": lambda path: os.truncate(path, 0),
        "another build's": lambda path: path.write_text("other\n"),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a link": lambda path: (path.rename(path.with_name("x")), path.symlink_to(path.with_name("x"))),
        "writable for all": lambda path: path.chmod(0o777),
        "renamed": lambda path: path.rename(path.with_name(path.name[:-9] + "00000.so")),
    }[name]


@pytest.mark.parametrize(
    "damage", ["truncated", "empty", "another build's", "a folder", "a link", "writable for all", "renamed"]
)
def test_a_library_that_is_not_what_was_built_is_built_again(damage, compiler):
    (compiler / "go").touch()
    library = build.build()
    damage_by(damage)(library)
    assert build.build() == library and library.read_text() == "library\n" and not library.is_symlink()
    assert (compiler / "calls").read_text() == "call\n" * 2
    assert build.build() == library and (compiler / "calls").read_text() == "call\n" * 2


def test_a_library_of_somebody_else_is_built_again(compiler, monkeypatch):
    (compiler / "go").touch()
    library = build.build()
    if os.geteuid() == 0:
        os.chown(library, 12345, 12345)
    else:
        found = os.stat_result((0o100700, 0, 0, 1, 12345, 12345, 8, 0, 0, 0))
        monkeypatch.setattr(type(library), "lstat", lambda path: found if path == library else os.lstat(path))
    assert build.build() == library and (compiler / "calls").read_text() == "call\n" * 2
    assert library.stat().st_uid == os.geteuid()


BUILD = "from specdec_kernels.cpu.build import build; print(build(), flush=True)"


def start(script=BUILD):
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_two_processes_build_once(compiler):
    processes = [start() for _ in range(3)]
    wait_for(compiler / "calls")
    (compiler / "go").touch()
    (library,) = {process.communicate(timeout=60)[0] for process in processes}
    assert (compiler / "calls").read_text() == "call\n"
    assert Path(library.strip()).read_text() == "library\n"


def test_a_killed_process_leaves_nothing_to_the_next_run(compiler):
    """kill -9 in the middle of a compilation: the compiler lives on until the next run ends it and starts its own."""
    process = start()
    wait_for(compiler / "calls")
    (scratch,) = (compiler / "cache" / "cpu").iterdir()
    process.kill()
    process.communicate()
    assert scratch.is_dir() and len(writers(scratch)) >= 1
    threading.Timer(0.2, (compiler / "go").touch).start()
    library = build.build()
    assert list(library.parent.iterdir()) == [library] and library.read_text() == "library\n"
    assert writers(scratch) == [] and (compiler / "calls").read_text() == "call\n" * 2


def writers(scratch):
    """Live processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if (
                str(scratch) in path.read_text(errors="replace")
                and "Z" not in (path.parent / "stat").read_text().split()[2]
            ):
                found.append(path)
    return found


def test_a_full_disk_and_a_closed_cache_say_so(compiler, monkeypatch):
    (compiler / "full").touch()
    with pytest.raises(build.NativeUnavailable, match="ld: No space left on device"):
        build.build()
    (compiler / "full").unlink()
    (compiler / "go").touch()
    (compiler / "file").touch()
    monkeypatch.setenv("SPECDEC_CACHE", str(compiler / "file"))
    with pytest.raises(build.NativeUnavailable, match=r"cannot write the cache .*file/cpu: .*set SPECDEC_CACHE"):
        build.build()
    monkeypatch.setenv("SPECDEC_CACHE", "~no-such-user/x")
    with pytest.raises(build.NativeUnavailable, match="no cache folder"):
        build.build()
