"""Ratios are taken prompt by prompt, losses are counted, and the written files hold the same numbers."""

from __future__ import annotations

import csv
import json

import pytest

from specdec.bench.plot import plot
from specdec.bench.report import Results, text, write
from specdec.bench.samples import Sample
from specdec.bench.session import Throughput
from specdec.bench.summary import summarize


def sample(mode: str, prompt: str, seconds: float, tokens: int = 10, forwards: int = 10, **fields) -> Sample:
    one = Sample(list(range(tokens)), seconds, forwards, **fields)
    one.mode, one.prompt, one.kind = mode, prompt, prompt
    return one


@pytest.fixture
def samples() -> list[Sample]:
    found = []
    for prompt, plain, fast in (("a", 1.0, 0.5), ("b", 1.0, 1.1), ("c", 2.0, 1.0)):
        found.append(sample("plain", prompt, plain))
        found.append(
            sample("fast", prompt, fast, forwards=5, drafted_per_position=[4, 2], accepted_per_position=[3, 1])
        )
        found.append(sample("peer", prompt, 2 * plain))
    return found


def test_ratios_are_medians_over_prompts_and_losses_are_named(samples):
    rows = {row.mode: row for row in summarize(samples, "plain", "peer")}
    fast = rows["fast"]
    assert fast.versus_plain.median == pytest.approx(2.0)
    assert fast.versus_plain.low == pytest.approx(1 / 1.1)
    assert fast.versus_reference.median == pytest.approx(4.0)
    assert fast.losses == ["b"] and rows["plain"].losses == [] and rows["peer"].losses == ["a", "b", "c"]
    assert fast.tau.median == 2.0
    assert fast.acceptance == pytest.approx(4 / 6)
    assert fast.acceptance_per_position == pytest.approx([0.75, 0.5])
    assert fast.same_as_plain == 3 and rows["plain"].same_as_plain is None


def test_repeats_count_once_per_prompt():
    runs = [sample("plain", "a", s) for s in (1.0, 1.0, 9.0)] + [sample("plain", "b", 2.0)]
    (row,) = summarize(runs, "plain", None)
    assert row.prompts == 2
    assert row.tokens_per_second.high == pytest.approx(10.0)


def test_different_text_is_not_the_same(samples):
    samples[1].token_ids[-1] = 99
    rows = {row.mode: row for row in summarize(samples, "plain", None)}
    assert rows["fast"].same_as_plain == 2


def test_written_files_agree(samples, tmp_path):
    rows = summarize(samples, "plain", "peer")
    batches = [Throughput("plain", 8, 0.0, 123.4, True)]
    results = Results("specdec bench", {"cpu": "x"}, {}, samples, rows, batches, {"warm": 3.2}, "peer")
    paths = write(results, tmp_path / "out")
    assert [p.name for p in paths] == ["results.json", "samples.csv", "summary.csv", "report.md"]
    data = json.loads(paths[0].read_text())
    assert data["summary"][1]["versus_plain"]["median"] == pytest.approx(2.0)
    assert data["startup_seconds"] == {"warm": 3.2}
    with paths[1].open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == 9 and float(read[1]["tokens_per_second"]) == pytest.approx(20.0)
    report = paths[3].read_text()
    assert "1/3" in report and "123.4*" in report and "start-up to the first token, warm: 3.2 s" in report
    assert report.count("|--") >= 3
    assert text(results) in report


def test_plot_shows_drafting_modes_only(samples, tmp_path):
    rows = summarize(samples, "plain", None)
    path = tmp_path / "plot.png"
    assert plot(rows, {"fast": 2, "plain": None, "peer": None}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not plot([r for r in rows if r.mode == "plain"], {"plain": None}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
