"""Write a benchmark's results: JSON with everything, CSV for programs, the report for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from specdec.bench.report import Results, text
from specdec.bench.samples import Sample
from specdec.bench.summary import Row


def write(results: Results, folder: Path) -> list[Path]:
    """Write results.json, samples.csv, summary.csv, paired.csv and report.md; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("results.json", "samples.csv", "summary.csv", "paired.csv", "report.md")]
    paths[0].write_text(json.dumps(results.to_dict(), indent=1) + "\n", encoding="utf-8")
    _write_samples(results.samples, paths[1])
    _write_summary(results.rows, paths[2])
    _write_paired(results.rows, paths[3])
    lines = [f"Command: `{results.command}`", f"Machine: {json.dumps(results.machine)}", text(results)]
    paths[4].write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return paths


def _write_samples(samples: Sequence[Sample], path: Path) -> None:
    columns = ["mode", "prompt", "kind", "temperature", "repeat", "tokens", "seconds", "tokens_per_second", "tau"]
    columns += ["acceptance", "overhead", "drafting", "first_token_seconds", "disturbed"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for s in samples:
            row = [s.mode, s.prompt, s.kind, s.temperature, s.repeat, len(s.token_ids), s.seconds, s.tokens_per_second]
            writer.writerow([*row, s.tau, s.acceptance, s.overhead, s.drafting, s.first_token_seconds, s.disturbed])


def _write_summary(rows: Sequence[Row], path: Path) -> None:
    columns = ["mode", "temperature", "prompts", "tokens_per_second", "tokens_per_second_min", "tokens_per_second_max"]
    columns += ["vs_plain", "vs_plain_min", "vs_plain_max", "vs_reference", "tau", "acceptance", "overhead", "drafting"]
    columns += ["same_as_plain", "losses", "undecided", "disturbed"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for r in rows:
            plain = r.versus_plain
            versus = [plain.median, plain.low, plain.high] if plain else ["", "", ""]
            speed = r.tokens_per_second
            row = [r.mode, r.temperature, r.prompts, speed.median, speed.low, speed.high, *versus]
            row += [r.versus_reference.median if r.versus_reference else "", r.tau.median, r.acceptance, r.overhead]
            writer.writerow([*row, r.drafting, r.same_as_plain, len(r.losses), len(r.undecided), r.disturbed])


def _write_paired(rows: Sequence[Row], path: Path) -> None:
    columns = ["mode", "prompt", "kind", "temperature", "pairs", "plain", "speed", "ratio", "low", "high"]
    columns += ["verdict", "within_aim"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([getattr(one, name) for name in columns] for row in rows for one in row.paired)
