"""Plot a benchmark: acceptance per draft position, and speed-up over plain decoding by k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specdec.bench.summary import Row


def plot(rows: Sequence[Row], num_drafts: Mapping[str, int | None], path: Path) -> bool:
    """Write a PNG; returns False when no mode drafted anything. Needs matplotlib (extra ``plot``)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drafting = [r for r in rows if r.acceptance_per_position and r.versus_plain is not None]
    if not drafting:
        return False
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for row in drafting:
        positions = range(1, len(row.acceptance_per_position) + 1)
        style = "-o" if row.temperature == 0 else "--s"
        label = f"{row.mode}, T={row.temperature:g}"
        left.plot(positions, row.acceptance_per_position, style, markersize=3, label=label)
    left.set(xlabel="draft position", ylabel="accepted share of drafts", ylim=(0, 1), title="acceptance per position")
    left.legend(fontsize=7)
    for temperature in sorted({r.temperature for r in drafting}):
        chosen = [(num_drafts[r.mode], r.versus_plain) for r in drafting if r.temperature == temperature]
        points = sorted((k, v) for k, v in chosen if k is not None and v is not None)
        ks = [k for k, _ in points]
        middle = [v.median for _, v in points]
        errors = [[v.median - v.low for _, v in points], [v.high - v.median for _, v in points]]
        right.errorbar(ks, middle, yerr=errors, fmt="o-", capsize=3, label=f"T={temperature:g}")
    right.axhline(1.0, color="grey", linewidth=0.8)
    right.set(xlabel="k (tokens drafted per round)", ylabel="speed over plain decoding", title="speed-up, min to max")
    right.legend(fontsize=7)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True
