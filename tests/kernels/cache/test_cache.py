"""Kept files: where, whose, whether they are what was kept, and what killed processes leave."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from specdec_kernels.cache import manifest, scratch
from specdec_kernels.cache.locks import locked
from specdec_kernels.cache.places import CacheError, cache_root, cannot_write, is_ours, ready


def test_the_home_is_meant_by_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, want in (("~/x", tmp_path / "x"), ("~", tmp_path), ("/a/b", Path("/a/b")), ("rel", Path.cwd() / "rel")):
        monkeypatch.setenv("SPECDEC_CACHE", given)
        assert cache_root() == want
    monkeypatch.setenv("SPECDEC_CACHE", "~no-such-user/x")
    with pytest.raises(CacheError, match=r"no cache folder.*SPECDEC_CACHE"):
        cache_root()
    monkeypatch.delenv("SPECDEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "specdec"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "specdec"


def test_kernels_and_checkpoints_share_the_place(monkeypatch, tmp_path):
    from specdec_kernels.cpu.build import cache_dir

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECDEC_CACHE", "~/x")
    assert cache_dir() == tmp_path / "x" / "cpu"


def test_a_full_disk_and_a_closed_folder_are_said_as_that(tmp_path):
    full = cannot_write(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    assert "no space is left for" in str(full) and "SPECDEC_CACHE" in str(full)
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match=r"cannot write the cache .*file/sub: Not a directory; set SPECDEC_CACHE"):
        ready(tmp_path / "file" / "sub")


def test_folders_of_others_are_not_ours(tmp_path):
    mine = ready(tmp_path / "mine")
    assert is_ours(mine) and mine.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(mine)
    assert not is_ours(tmp_path / "link") and not is_ours(tmp_path / "absent")
    mine.chmod(0o777)
    inside = ready(mine)
    assert inside == mine / f"user-{os.geteuid()}" and is_ours(inside)
    inside.chmod(0o777)
    with pytest.raises(CacheError, match="others may write there"):
        ready(mine)


def test_a_sealed_folder_is_intact_until_something_changes(tmp_path, monkeypatch):
    def make(name):
        folder = ready(tmp_path / name)
        (folder / "config.json").write_text("{}")
        (folder / "weights").write_bytes(b"0123456789" * 1000)
        for path in folder.iterdir():
            path.chmod(0o600)
        manifest.seal(folder)
        return folder

    assert manifest.intact(make("good"))
    assert not manifest.intact(tmp_path / "absent")
    damages = {
        "truncated": lambda f: os.truncate(f / "weights", 5000),
        "empty": lambda f: (f / "weights").write_bytes(b""),
        "flipped": lambda f: (f / "weights").write_bytes(b"0123456788" + b"0123456789" * 999),
        "missing": lambda f: (f / "config.json").unlink(),
        "extra": lambda f: (f / "tokenizer.py").touch(),
        "unlisted": lambda f: (f / manifest.NAME).unlink(),
        "nonsense": lambda f: (f / manifest.NAME).write_text("[" * 100_000),
        "empty list": lambda f: (f / manifest.NAME).write_text('{"format": 1, "files": {}}'),
        "other format": lambda f: (f / manifest.NAME).write_text('{"format": 0, "files": {}}'),
        "link": lambda f: ((f / "weights").rename(f.parent / "w"), (f / "weights").symlink_to(f.parent / "w")),
        "writable": lambda f: (f / "weights").chmod(0o666),
    }
    for name, damage in damages.items():
        folder = make(name)
        damage(folder)
        assert not manifest.intact(folder), name
    flipped = make("dated")
    before = (flipped / "weights").stat()
    damages["flipped"](flipped)
    os.utime(flipped / "weights", ns=(before.st_atime_ns, before.st_mtime_ns))  # the size is the same, too
    assert not manifest.intact(flipped)

    touched = make("touched")  # copied, or restored from a backup: read in full once, then quick again
    os.utime(touched / "weights")
    monkeypatch.setattr(manifest, "CLOCK", -(10**10))  # as if it were later
    assert manifest.intact(touched)
    monkeypatch.setattr(manifest, "checksum", lambda path: pytest.fail("read again"))
    assert manifest.intact(touched)


def test_files_of_others_are_not_believed(tmp_path, monkeypatch):
    folder = ready(tmp_path / "x")
    (folder / "weights").touch(0o600)
    manifest.seal(folder)
    assert manifest.intact(folder)
    if os.geteuid() == 0:
        os.chown(folder / "weights", 12345, 12345)
    else:  # only root can give files away
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not manifest.intact(folder)


HOLD = """
import sys, time
from pathlib import Path
from specdec_kernels.cache.locks import locked
from specdec_kernels.cache.scratch import scratch
folder = Path(sys.argv[1])
with locked(folder, 5.0), scratch(folder) as work:
    (work / "big").write_bytes(b"x")
    print(work, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """(process, its scratch): a process at work in tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lock_waits_says_so_gives_up_and_ends_with_its_holder(holder, tmp_path):
    process, _ = holder
    said = []
    with (
        pytest.raises(CacheError, match=r"another process has held .* for more than 0\.2 s"),
        locked(tmp_path, 0.2, lambda: said.append(1)),
    ):
        pass
    assert said == [1]
    process.kill()  # not even a chance to let go
    process.wait()
    with locked(tmp_path, 5.0) as held:
        assert held


def test_what_a_killed_process_leaves_goes_with_the_next_run(holder, tmp_path):
    process, work = holder
    (tmp_path / "kernels-1.so").touch()
    (tmp_path / ".converting-abcd").mkdir()  # of an older release: nobody known
    (tmp_path / "tmpabcd.so").touch()
    scratch.sweep(tmp_path)
    assert work.is_dir() and (tmp_path / "tmpabcd.so").exists()  # at work, and too young to be given up
    writer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(work / "cc.s")])
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    old = time.time() - 2 * scratch.NAMELESS_AGE
    for name in (".converting-abcd", "tmpabcd.so", "kernels-1.so"):
        os.utime(tmp_path / name, (old, old))
    scratch.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kernels-1.so"]
    assert writer.wait(timeout=10) == -signal.SIGKILL  # an orphan that still wrote there


def test_a_pid_that_is_another_processes_by_now_protects_nothing(tmp_path):
    left = tmp_path / f"{scratch.PREFIX}{os.getpid()}-1-abc"
    left.mkdir()
    scratch.sweep(tmp_path)
    assert not left.exists()


def test_scratch_is_gone_after_success_and_failure(tmp_path):
    with scratch.scratch(tmp_path) as work:
        (work / "x").touch()
    with pytest.raises(KeyboardInterrupt), scratch.scratch(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CacheError, match="cannot write the cache"), scratch.scratch(tmp_path / "absent"):
        pass
