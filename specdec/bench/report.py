"""The report of a benchmark: what one run found, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from specdec.bench.batches import Throughput
from specdec.bench.paired import CONFIDENCE, FEWEST
from specdec.bench.samples import Sample
from specdec.bench.summary import Row, versus

SCHEMA_VERSION = 2


@dataclass
class Results:
    """Everything one run of the benchmark found."""

    command: str
    machine: dict[str, object]
    settings: dict[str, object]
    samples: list[Sample] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    throughput: list[Throughput] = field(default_factory=list)
    startup: dict[str, float] = field(default_factory=dict)  # seconds from the command to the first token
    reference: str | None = None
    peers: dict[str, Any] = field(default_factory=dict)  # how engines of other interpreters describe themselves
    failures: list[str] = field(default_factory=list)  # modes that left, and why
    peer_names: list[str] = field(default_factory=list)  # modes of other engines

    def to_dict(self) -> dict[str, Any]:
        samples = [asdict(s) | {"tokens_per_second": s.tokens_per_second, "tau": s.tau} for s in self.samples]
        return {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "machine": self.machine,
            "settings": self.settings,
            "summary": [row.to_dict() for row in self.rows],
            "throughput": [asdict(t) | {"tokens_per_second": t.tokens_per_second} for t in self.throughput],
            "startup_seconds": self.startup,
            "peers": self.peers,
            "failures": self.failures,
            "samples": samples,
        }


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, aligned for reading as it is."""
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in [header, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def text(results: Results) -> str:
    """The report as Markdown."""
    parts = [summary_table(results), versus_table(results), kinds_table(results), paired_table(results)]
    if results.throughput:
        parts.append(throughput_table(results))
    if results.startup:
        parts.append("\n".join(f"start-up to the first token, {k}: {v:.1f} s" for k, v in results.startup.items()))
    disturbed = sum(row.disturbed for row in results.rows)
    if disturbed:
        parts.append(f"{disturbed} of {len(results.samples)} samples were taken while others used the CPU.")
    parts += [f"Not finished: {failure}" for failure in results.failures]
    return "\n\n".join(part for part in parts if part)


def summary_table(results: Results) -> str:
    """One line per mode and temperature."""
    reference = [f"vs {results.reference}"] if results.reference else []
    header = ["mode", "T", "tokens/s", "vs plain", *reference, "tau", "acceptance"]
    header += ["overhead", "drafting", "= plain", "losses"]
    rows = []
    for row in results.rows:
        rows.append(
            [
                row.mode,
                f"{row.temperature:g}",
                f"{row.tokens_per_second.median:.1f} "
                f"[{row.tokens_per_second.low:.1f}..{row.tokens_per_second.high:.1f}]",
                str(row.versus_plain or "-"),
                *([str(row.versus_reference or "-")] if reference else []),
                str(row.tau) if row.tau.low > 0 else "-",
                _share(row.acceptance),
                _share(row.overhead),
                _share(row.drafting),
                "-" if row.same_as_plain is None else f"{row.same_as_plain}/{row.prompts}",
                "-" if row.mode in results.peer_names else _losses(row),
            ]
        )
    return table(header, rows)


def versus_table(results: Results) -> str:
    """How many times as fast our modes are as each mode of the peers, prompt by prompt."""
    peers = [name for name in results.peer_names if any(s.mode == name for s in results.samples)]
    ours = [row for row in results.rows if row.mode not in peers]
    rows = []
    for row in ours:
        cells = [versus(results.samples, row.mode, peer, row.temperature) for peer in peers]
        rows.append([row.mode, f"{row.temperature:g}", *(str(cell or "-") for cell in cells)])
    return table(["times as fast as", "T", *peers], rows) if peers and rows else ""


def kinds_table(results: Results) -> str:
    """Tokens a second by kind of prompt (medians), greedy first."""
    modes = list(dict.fromkeys(s.mode for s in results.samples))
    groups: dict[tuple[float, str], dict[str, list[float]]] = {}
    for s in results.samples:
        groups.setdefault((s.temperature, s.kind), {}).setdefault(s.mode, []).append(s.tokens_per_second)
    rows = []
    for (temperature, kind), speeds in sorted(groups.items(), key=lambda item: item[0][0]):
        cells = [f"{median(speeds[m]):.1f}" if m in speeds else "-" for m in modes]
        rows.append([kind, f"{temperature:g}", *cells])
    return table(["tokens/s by kind", "T", *modes], rows) if rows else ""


def paired_table(results: Results) -> str:
    """Each prompt in each mode of ours against plain decoding, with what the repeats can tell."""
    found = [p for row in results.rows for p in row.paired if row.mode not in results.peer_names]
    if not found:
        return ""
    if all(one.low is None for one in found):
        return f"No verdicts on single prompts: they need {FEWEST} repeats or more; paired.csv has the ratios."
    rows = []
    for one in found:
        interval = "-" if one.low is None or one.high is None else f"{one.low:.3f}..{one.high:.3f}"
        speeds = [f"{one.plain:.1f}", f"{one.speed:.1f}", f"{one.ratio:.3f}", interval]
        rows.append(
            [one.prompt, one.mode, f"{one.temperature:g}", *speeds, str(one.pairs), one.verdict, one.within_aim]
        )
    header = ["against plain", "mode", "T", "plain tokens/s", "tokens/s", "ratio", f"{CONFIDENCE:.0%} interval"]
    note = (
        "Ratio: median over repeats of the speed over plain decoding just before or after; its interval is from the "
        f"signed ranks of {FEWEST} repeats or more. Within 3 %: yes when it lies above 0.97, no when below."
    )
    return table([*header, "pairs", "verdict", "within 3 %"], rows) + "\n\n" + note


def throughput_table(results: Results) -> str:
    """Tokens a second of whole batches: medians, with the range when there were repeats."""
    batches = sorted({t.batch for t in results.throughput})
    found = {(t.mode, t.temperature, t.batch): t for t in results.throughput}
    rows = []
    for mode, temperature in dict.fromkeys((t.mode, t.temperature) for t in results.throughput):
        cells = [_throughput(found.get((mode, temperature, batch))) for batch in batches]
        rows.append([mode, f"{temperature:g}", *cells])
    mark = "\n\n\\* some of it taken while others used the CPU" if any(t.disturbed for t in results.throughput) else ""
    return table(["tokens/s in a batch of", "T", *map(str, batches)], rows) + mark


def _throughput(one: Throughput | None) -> str:
    if one is None:
        return "-"
    spread = f" [{min(one.speeds):.1f}..{max(one.speeds):.1f}]" if len(one.speeds) > 1 else ""
    return f"{one.tokens_per_second:.1f}{spread}" + ("*" if one.disturbed else "")


def _losses(row: Row) -> str:
    if not row.paired:
        return "-"
    undecided = f", {len(row.undecided)} open" if row.undecided else ""
    return f"{len(row.losses)}/{len(row.paired)}{undecided}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
