"""Plot a benchmark: acceptance per draft position, and speed-up over plain decoding by k."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.bench.summary import Row
from specdec.files import write_atomically

MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")  # one per temperature


def plot(rows: Sequence[Row], num_drafts: Mapping[str, int | None], path: Path) -> bool:
    """Write a PNG; returns False when no mode drafted anything. Needs matplotlib (extra ``plot``)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drafting = [r for r in rows if num_drafts.get(r.mode) is not None and r.versus_plain is not None]
    if not any(r.acceptance_per_position for r in drafting):
        return False
    temperatures = sorted({r.temperature for r in drafting})
    lines = {t: LINES[i % len(LINES)] for i, t in enumerate(temperatures)}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    _acceptance(left, [r for r in drafting if r.acceptance_per_position], lines)
    _speed_up(right, drafting, num_drafts, lines)
    image = io.BytesIO()
    figure.savefig(image, dpi=150, format=path.suffix.lstrip(".") or None)
    write_atomically(path, image.getvalue())
    pyplot.close(figure)
    return True


def _acceptance(axes: Any, rows: Sequence[Row], lines: Mapping[float, str]) -> None:
    """A colour per mode, a kind of line per temperature."""
    from matplotlib.ticker import MaxNLocator

    modes = list(dict.fromkeys(r.mode for r in rows))
    for row in rows:
        number = modes.index(row.mode)
        positions = range(1, len(row.acceptance_per_position) + 1)
        axes.plot(
            positions,
            row.acceptance_per_position,
            linestyle=lines[row.temperature],
            marker=MARKERS[number % len(MARKERS)],
            markersize=8 - min(number, 5),  # later ones lie on top: both stay visible where they agree
            fillstyle="full" if lines[row.temperature] == LINES[0] else "none",  # a single point has no line
            color=f"C{number % 10}",
            label=f"{row.mode}, T={row.temperature:g}",
        )
    axes.set(xlabel="draft position", ylabel="accepted share of the drafts there", title="acceptance per position")
    axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, ncols=1 + (len(rows) > 4), loc="best")


def _speed_up(axes: Any, rows: Sequence[Row], num_drafts: Mapping[str, int | None], lines: Mapping[float, str]) -> None:
    """Medians over prompts as a line per engine and temperature, every prompt as a dot beside it."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    series: dict[tuple[str, float], list[tuple[int, Row]]] = defaultdict(list)
    for row in rows:
        k = num_drafts[row.mode]
        assert k is not None
        series[row.mode.replace(f" k={k}", ""), row.temperature].append((k, row))
    for number, ((name, temperature), points) in enumerate(series.items()):
        points.sort(key=lambda point: point[0])
        beside = 2 ** (0.06 * (number - (len(series) - 1) / 2))  # series do not hide each other
        middle = [row.versus_plain.median for _, row in points if row.versus_plain is not None]
        look = {"color": f"C{number % 10}", "marker": "o"}
        where = [k * beside for k, _ in points]
        axes.plot(where, middle, linestyle=lines[temperature], label=f"{name}, T={temperature:g}", **look)
        dots = [(x, one.ratio) for x, (_, row) in zip(where, points, strict=True) for one in row.paired]
        axes.scatter([x for x, _ in dots], [y for _, y in dots], s=10, alpha=0.35, color=look["color"])
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ks = sorted({k for points in series.values() for k, _ in points})
    axes.set_xlim(ks[0] / 1.4, ks[-1] * 1.4)
    axes.xaxis.set_major_locator(FixedLocator(ks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_locator(FixedLocator(_ticks(*axes.get_ylim())))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel="k (tokens drafted per round)", ylabel="speed over plain decoding")
    axes.set_title("speed-up: median of the prompts, dots are prompts")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _ticks(low: float, high: float) -> list[float]:
    """Round ratios within the range: few when it is wide."""
    steps = (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4) if high / low < 6 else ()
    return [t for t in (*steps, *(2.0**i for i in range(-6, 8))) if low <= t <= high]
