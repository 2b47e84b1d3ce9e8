"""Start-up is timed in processes of its own, and its parts add up."""

from __future__ import annotations

import pytest

from specdec.bench import startup
from specdec.bench.phases import Clock
from specdec.bench.startup import StartupError, measure_startup


def test_the_time_to_the_first_character_counts(monkeypatch, tmp_path):
    (tmp_path / "talker.py").write_text(
        "import os, sys, time\n"
        "print('loading' * 50_000, file=sys.stderr)\n"
        "print(os.environ.get('SPECDEC_CACHE', 'warm'), flush=True)\n"
        "print('{\"weights\": 0.5}', file=sys.stderr)\n"
        "time.sleep(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("SPECDEC_CACHE", raising=False)
    seconds, said = startup._once(["talker"], [], {"SPECDEC_CACHE": "here"})
    assert 0 < seconds < 3 and said.splitlines()[-1] == '{"weights": 0.5}'


def test_a_command_that_fails_says_why():
    with pytest.raises(StartupError, match=r"nothing_here\.yaml"):
        measure_startup(["nothing_here.yaml"], cold=False)


def test_parts_do_not_count_what_is_timed_inside_them(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr("specdec.bench.phases.time.perf_counter", lambda: next(now))
    clock = Clock()
    with clock.time("outer"):  # 0 to 5
        with clock.time("inner"):  # 1 to 2
            pass
        with clock.time("inner"):  # 3 to 4
            pass
    assert clock.seconds == {"inner": 2, "outer": 3}
