"""The command's edge: closed, full and broken streams, no memory, signals, bytes that are no text; never a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specdec.cli import edge
from specdec.files import TextFileError, check_text, decode, read_text, write_atomically

SPECDEC = [sys.executable, "-m", "specdec"]


def shell(command, **options):
    """(exit code, standard error) of a command with ``$S`` for specdec."""
    environment = {**os.environ, "S": f"{sys.executable} -m specdec", **options.pop("env", {})}
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, timeout=60, check=False, env=environment, **options
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("$S list >&-", 2, "specdec list: error: standard output is closed"),
        ("$S list >/dev/full", 2, "specdec list: error: cannot write standard output: No space left on device"),
        ("$S generate <&-", 2, "no prompt; use --prompt TEXT"),
        ("$S validate absent.yaml 2>&-", 2, ""),
        ("$S validate absent.yaml 2>/dev/full", 2, ""),
        ("$S list <&- >&- 2>&-", 2, ""),
        ("$S list | true; exit ${PIPESTATUS[0]}", (0, 2), ""),
        ("printf 'a\\xff' | $S generate", 2, "standard input is not UTF-8: byte 0xff in line 1"),
        ("printf 'a\\xff' | LC_ALL=C PYTHONUTF8=0 $S generate", 2, "standard input is not UTF-8: byte 0xff in line 1"),
        ("$S generate --prompt $'ab\\xfe'", 2, "--prompt is not UTF-8: byte 0xfe after 2 characters"),
        ("(ulimit -v 100000; $S generate --prompt a)", (1, 2), "error: "),
        ("$S tune --acceptance 0.5 --draft-cost-ratio 1e999 --json", 1, "inf is no finite number"),
    ],
)
def test_one_line_whatever_the_system_does(command, code, says, tmp_path):
    got, error = shell(command, cwd=tmp_path)
    assert got in (code if isinstance(code, tuple) else (code,)) and says in error
    assert "Traceback" not in error and "Exception ignored" not in error and len(error.splitlines()) <= 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_signals_end_quietly(number, tmp_path):
    """While it reads standard input, which is where a process without a prompt waits."""
    process = subprocess.Popen(
        [*SPECDEC, "generate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    stat = Path(f"/proc/{process.pid}/stat")
    end = time.monotonic() + 30
    while stat.exists() and time.monotonic() < end and not _waits(process.pid):
        time.sleep(0.02)
    process.send_signal(number)
    try:
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + number and b"Traceback" not in error


def _waits(pid):
    """Whether the process sleeps in a read of its standard input."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")
    except OSError:  # not allowed to look: long enough for the imports
        time.sleep(2.0)
        return True


class Broken:
    def __str__(self):
        return "x" * 10_000


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory"),
        (RuntimeError("can't start new thread"), "out of memory: can't start new thread"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "out of memory: libtorch.so"),
        (ImportError("undefined symbol: x"), "a library cannot be loaded: undefined symbol"),
        (OSError(28, "No space left on device"), "cannot write standard output: No space left on device"),
        (PermissionError(13, "Permission denied", "/x/y"), "Permission denied: /x/y"),
        (KeyError("k"), "unexpected KeyError: 'k'; this is a bug, and SPECDEC_TRACEBACK=1 shows"),
        (RecursionError("deep\nin"), "unexpected RecursionError: deep in; this is a bug"),
        (ValueError(Broken()), "..."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_nobody_expected_is_one_short_line(error, says, capsys):
    def main():
        raise error

    assert edge.run(main, "specdec generate") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("specdec generate: error: ") and says in err
    assert len(err.splitlines()) == 1 and len(err) < 700


def test_the_place_of_a_bug_is_named_and_the_traceback_is_one_variable_away(monkeypatch, capsys):
    def main():
        return decode(None, "q")

    assert edge.run(main, "specdec") == 2
    assert re.search(r"unexpected AttributeError: .* \(specdec/files\.py:\d+\); this is a bug", capsys.readouterr().err)
    monkeypatch.setenv(edge.TRACEBACK, "1")
    with pytest.raises(AttributeError):
        edge.run(main, "specdec")


def test_files_are_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_atomically(path, "old")
    write_atomically(path, "new ☃")
    assert path.read_text(encoding="utf-8") == "new ☃"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "never seen")
    assert path.read_text(encoding="utf-8") == "new ☃" and list(tmp_path.iterdir()) == [path]


def test_text_is_utf8_or_said_not_to_be(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert read_text(path) == "one\ntwo\n"
    with pytest.raises(TextFileError, match="has more than"):
        read_text(path, most=5)
    for wrong, says in ((tmp_path, "Is a directory"), ("a\0b", "null"), (tmp_path / "no", "No such file")):
        with pytest.raises(TextFileError, match=f"cannot be read: .*{says}"):
            read_text(wrong)
    with pytest.raises(TextFileError, match="q is not UTF-8: byte 0xc3 in line 2"):
        decode(b"a\nb\xc3", "q")
    assert check_text("é☃", "q") == "é☃"


@pytest.mark.parametrize("line", ["[" * 100_000, '{"prompt": ' * 50_000, '"open'])
def test_lines_that_are_no_prompts(line, tmp_path):
    from specdec.bench.prompts import BenchPromptError, read
    from specdec.cli.prompts import PromptFileError, read_prompts

    (tmp_path / "p.jsonl").write_text('"a\u2028b"\n' + line, encoding="utf-8")
    with pytest.raises(PromptFileError, match=r"p\.jsonl:2: not JSON"):
        read_prompts([], str(tmp_path / "p.jsonl"), sys.stdin)
    with pytest.raises(BenchPromptError, match=r"p\.jsonl:2: not JSON"):
        read([tmp_path / "p.jsonl"])
    (tmp_path / "p.jsonl").write_text('"a\u2028b"\n', encoding="utf-8")
    assert read_prompts([], str(tmp_path / "p.jsonl"), sys.stdin) == ["a\u2028b"]
