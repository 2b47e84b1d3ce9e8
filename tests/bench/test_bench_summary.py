"""Ratios are taken prompt by prompt, losses are counted, and the written files hold the same numbers."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from specdec.bench.batches import Throughput
from specdec.bench.files import write
from specdec.bench.plot import plot
from specdec.bench.report import Results, text
from specdec.bench.samples import Sample
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
    assert fast.losses == [] and fast.undecided == ["a", "b", "c"]  # one run each decides nothing
    assert rows["plain"].paired == [] and len(rows["peer"].paired) == 3
    assert fast.tau.median == 2.0
    assert fast.acceptance == pytest.approx(4 / 6)
    assert fast.acceptance_per_position == pytest.approx([0.75, 0.5])
    assert fast.same_as_plain == 3 and rows["plain"].same_as_plain is None


def test_our_modes_against_every_peer(samples):
    results = Results("c", {}, {}, samples, summarize(samples, "plain", None), peer_names=["peer", "never ran"])
    lines = text(results).splitlines()
    (header,) = [line for line in lines if line.startswith("| times as fast as")]
    assert header.split() == ["|", "times", "as", "fast", "as", "|", "T", "|", "peer", "|"]
    assert any(line.startswith("| fast ") and "4.00 [1.82..4.00]" in line for line in lines)


def test_repeats_count_once_per_prompt():
    runs = [sample("plain", "a", s, repeat=i) for i, s in enumerate((1.0, 1.0, 9.0))] + [sample("plain", "b", 2.0)]
    (row,) = summarize(runs, "plain", None)
    assert row.prompts == 2
    assert row.tokens_per_second.high == pytest.approx(10.0)


def test_losses_are_what_the_repeats_show():
    runs = []
    for i in range(7):
        noise = 1.0 + 0.1 * i
        for prompt, factor in (("slow", 0.8), ("fast", 1.5), ("same", 1.04 if i % 2 else 0.96)):
            runs.append(sample("plain", prompt, noise, repeat=i))
            runs.append(sample("ngram", prompt, noise / factor, repeat=i))
    (_, row) = summarize(runs, "plain", None)
    assert row.losses == ["slow"] and row.undecided == ["same"]
    results = Results("c", {}, {}, runs, [row])
    lines = text(results).splitlines()
    assert any("| 1/3, 1 open" in line for line in lines)
    (slow,) = [line for line in lines if line.startswith("| slow ") and "0.800..0.800" in line]
    assert slow.rstrip("| ").endswith("| 7     | slower              | no")


def test_different_text_is_not_the_same(samples):
    samples[1].token_ids[-1] = 99
    rows = {row.mode: row for row in summarize(samples, "plain", None)}
    assert rows["fast"].same_as_plain == 2


def test_written_files_agree(samples, tmp_path):
    rows = summarize(samples, "plain", "peer")
    batches = [Throughput("plain", 8, 0.0, [100.0, 123.4, 130.0], 1)]
    results = Results("specdec bench", {"cpu": "x"}, {}, samples, rows, batches, {"warm": 3.2}, "peer")
    paths = write(results, tmp_path / "out")
    assert [p.name for p in paths] == ["results.json", "samples.csv", "summary.csv", "paired.csv", "report.md"]
    data = json.loads(paths[0].read_text())
    assert data["summary"][1]["versus_plain"]["median"] == pytest.approx(2.0)
    assert data["throughput"][0]["tokens_per_second"] == 123.4
    with paths[3].open() as file:
        assert [r["verdict"] for r in csv.DictReader(file)] == ["not distinguishable"] * 6
    assert data["startup_seconds"] == {"warm": 3.2}
    with paths[1].open() as file:
        read = list(csv.DictReader(file))
    assert len(read) == 9 and float(read[1]["tokens_per_second"]) == pytest.approx(20.0)
    report = paths[4].read_text()
    assert (
        "0/3, 3 open" in report
        and "123.4 [100.0..130.0]*" in report
        and "start-up to the first token, warm: 3.2 s" in report
    )
    assert "No verdicts on single prompts" in report
    assert report.count("|--") >= 3
    assert text(results) in report


def test_plot_shows_drafting_modes_only(samples, tmp_path):
    rows = summarize(samples, "plain", None)
    path = tmp_path / "plot.png"
    assert plot(rows, {"fast": 2, "plain": None, "peer": None}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not plot([r for r in rows if r.mode == "plain"], {"plain": None}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_plot_joins_the_ks_of_one_engine_only(samples, tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn = []
    real = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda self, *a, **k: drawn.append((k["label"], len(a[0]))) or real(self, *a, **k)
    )
    for one in list(samples):
        if one.mode == "fast":
            for name in ("ngram k=2", "ngram k=4", "lookup k=3"):
                samples.append(replace(one, mode=name))
    ks = {"plain": None, "peer": None, "fast": None, "ngram k=2": 2, "ngram k=4": 4, "lookup k=3": 3}
    assert plot(summarize(samples, "plain", None), ks, tmp_path / "plot.png")
    assert drawn[-2:] == [("ngram, T=0", 2), ("lookup, T=0", 1)]
