"""Write a benchmark's results: JSON with everything, CSV for programs, the report for people."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from specdec.bench.report import Results, text
from specdec.bench.samples import Sample
from specdec.bench.summary import Row
from specdec.files import write_atomically


def ready(folder: Path) -> None:
    """Create the folder and see that files can be written there, before anything is measured; raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def write(results: Results, folder: Path) -> list[Path]:
    """Write results.json, samples.csv, summary.csv, paired.csv and report.md, each as a whole; returns their paths."""
    lines = [f"Command: `{results.command}`", f"Machine: {json.dumps(results.machine)}", text(results)]
    contents = {
        "results.json": json.dumps(results.to_dict(), indent=1) + "\n",
        "samples.csv": _samples(results.samples),
        "summary.csv": _summary(results.rows),
        "paired.csv": _paired(results.rows),
        "report.md": "\n\n".join(lines) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def _samples(samples: Sequence[Sample]) -> str:
    columns = ["mode", "prompt", "kind", "temperature", "repeat", "tokens", "seconds", "tokens_per_second", "tau"]
    columns += ["acceptance", "overhead", "drafting", "first_token_seconds", "disturbed"]
    rows = []
    for s in samples:
        row = [s.mode, s.prompt, s.kind, s.temperature, s.repeat, len(s.token_ids), s.seconds, s.tokens_per_second]
        rows.append([*row, s.tau, s.acceptance, s.overhead, s.drafting, s.first_token_seconds, s.disturbed])
    return _table(columns, rows)


def _summary(rows: Sequence[Row]) -> str:
    columns = ["mode", "temperature", "prompts", "tokens_per_second", "tokens_per_second_min", "tokens_per_second_max"]
    columns += ["vs_plain", "vs_plain_min", "vs_plain_max", "vs_reference", "tau", "acceptance", "overhead", "drafting"]
    columns += ["same_as_plain", "losses", "undecided", "disturbed"]
    table = []
    for r in rows:
        plain = r.versus_plain
        versus = [plain.median, plain.low, plain.high] if plain else ["", "", ""]
        speed = r.tokens_per_second
        row = [r.mode, r.temperature, r.prompts, speed.median, speed.low, speed.high, *versus]
        row += [r.versus_reference.median if r.versus_reference else "", r.tau.median, r.acceptance, r.overhead]
        table.append([*row, r.drafting, r.same_as_plain, len(r.losses), len(r.undecided), r.disturbed])
    return _table(columns, table)


def _paired(rows: Sequence[Row]) -> str:
    columns = ["mode", "prompt", "kind", "temperature", "pairs", "plain", "speed", "ratio", "low", "high"]
    columns += ["verdict", "within_aim"]
    return _table(columns, ([getattr(one, name) for name in columns] for row in rows for one in row.paired))
