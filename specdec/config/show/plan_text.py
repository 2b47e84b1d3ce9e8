"""A plan as text for a terminal."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from specdec.config.final.speculative_config import Resolution, plain
from specdec.config.findings.diagnostics import Origin
from specdec.config.findings.render import render_text
from specdec.config.show.plan import Plan, Row

NAMES, VALUES = (20, 34), (8, 22)  # narrowest and widest columns; a longer value pushes its origin to the next line
WIDTH = 100
LONGEST_VALUE = 60
LONGEST_FORMULA = 48
UNKNOWN = {  # what is said where a size cannot be told
    "resources.target_weight_bytes": "no weights were found next to the target's config.json",
    "resources.draft_weight_bytes": "no weights were found next to the draft's config.json",
    "resources.draft_kv_bytes_per_token": "the draft's config.json does not tell",
    "resources.draft_logits_bytes": "the target's vocabulary is not known",
    "resources.draft_pass_bytes": "the draft's weights or the target's head are not known",
    "resources.draft_round_bytes": "the draft's weights or the target's head are not known",
}


def plan_text(plan: Plan, colour: bool = False, width: int | None = None) -> str:
    """Head line, sections in columns, engine changes, warnings; no line of the tables is wider than ``width``."""
    width = max(width or shutil.get_terminal_size((WIDTH, 40)).columns, 80)
    parts = [head(plan), *_tables(plan, width)]
    for number, member in enumerate(plan.members, 1):
        parts += [f"{number}. {head(member)}", *_tables(member, width, ("speculative", "draft", "wiring", "numbers"))]
    if plan.config.changes:
        rows = [
            (c.get("path", ""), f"{show(c.get('before'))} -> {show(c.get('after'))}", str(c.get("why", "")))
            for c in plan.config.changes
        ]
        parts.append(columns("changed by speculation", rows, width))
    findings = render_text(plan.diagnostics, colour=colour)
    return "\n\n".join(part for part in (*parts, findings) if part)


def _tables(plan: Plan, width: int, titles: Sequence[str] = ()) -> Iterator[str]:
    for title, rows in plan.sections:
        if titles and title not in titles:
            continue
        yield columns(title, [_cells(_bytes_row(row) if title == "resources" else row) for row in rows], width)
        if title == "draft":
            yield from _both(plan, width)
    if plan.sides and not any(title == "draft" for title, _ in plan.sections):
        yield from _both(plan, width)


def _both(plan: Plan, width: int) -> Iterator[str]:
    rows = [
        (
            row.path.split(".", 1)[1],
            show(row.value),
            "; ".join(t for t in (f"target {show(row.target)}", row.rule, _by(row.origin)) if t),
        )
        for row in plan.sides
    ]
    if rows:
        yield columns("draft and target", rows, width)


def _by(origin: Origin | None) -> str:
    """Who set a draft's setting, when it was not the rule beside it."""
    if origin is None or origin.kind in ("target", "record"):
        return ""
    return origin.detail if origin.kind == "derived" else _full(origin)


def columns(title: str, rows: Sequence[tuple[str, str, str]], width: int) -> str:
    """A titled table of name, value and remark; remarks fold into their own column."""
    name_width = _column([row[0] for row in rows], NAMES)
    value_width = _column([row[1] for row in rows], VALUES)
    indent = 2 + name_width + 1 + value_width + 1
    lines = [title]
    for name, value, remark in rows:
        start = f"  {name:<{name_width}} {value:<{value_width}}"
        folded = textwrap.wrap(remark, width - indent, break_on_hyphens=False)
        if len(start) > indent and folded:
            lines.append(start)
        elif folded:
            lines.append(f"{start:<{indent}}{folded.pop(0)}")
        else:
            lines.append(start.rstrip())
        lines += [" " * indent + text for text in folded]
    return "\n".join(lines)


def _column(cells: Sequence[str], bounds: tuple[int, int]) -> int:
    """The width of the longest cell that fits into the widest column."""
    return max([bounds[0], *(len(cell) for cell in cells if len(cell) <= bounds[1])])


def head(plan: Plan) -> str:
    """``dspark · DSpark · stable · lossless (standard rejection, greedy drafts)`` and how the method was found."""
    config, record = plan.config, plan.config.record
    verification = config.verification
    how = ", ".join(
        text
        for text in (
            f"{verification['rejection_sample_method']} rejection"
            if verification.get("rejection_sample_method")
            else "",
            f"{verification['draft_sample_method']} drafts" if verification.get("draft_sample_method") else "",
        )
        if text
    )
    label = "lossless" if plan.lossless else "LOSSY: the output distribution is not the target's"
    if not config.capabilities.get("proposes_draft_tokens", True):
        label = "drafts nothing"
    lines = [" · ".join((config.method, record.title, record.status, f"{label} ({how})" if how else label))]
    k = config.num_speculative_tokens
    if config.capabilities.get("proposes_draft_tokens", True):
        lines.append(f"{k} drafted tokens a round, verify block {k + 1} (the drafts and the token before them)")
    origin = config.provenance.get("speculative.method")
    if origin is not None and origin.kind not in ("user", "command line"):
        lines.append(f"method {_from(origin)}")
    embedded = record.engines.get("embedded")
    if embedded not in (True, "yes", None):
        lines.append(f"embedded engine: {embedded}; run it elsewhere with: specdec export vllm")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, str, str]:
    name, origin = row.path.split(".", 1)[1], row.origin
    if row.path in UNKNOWN and row.value is None:
        return name, "unknown", UNKNOWN[row.path]
    formula = origin.detail if origin is not None and row.path.startswith("numbers.") else ""
    if formula and len(formula) <= LONGEST_FORMULA:
        return name, show(row.value), formula if formula.startswith(("always", "largest")) else f"= {formula}"
    if formula and origin is not None:
        return name, show(row.value), f"from {', '.join(origin.inputs)}"
    return name, show(row.value), _full(origin, row.value) if origin else ""


def _full(origin: Origin, value: Any = None) -> str:
    """An origin and the other values it beat."""
    beaten = [f"{show(other)} {_from(source)}" for source, other in origin.over if plain(other) != plain(value)]
    return _from(origin) + (f", over {', '.join(beaten)}" if beaten else "")


def _from(origin: Origin) -> str:
    """``from draft.block_size``, ``run.yaml:7:3``, ``command line``…"""
    if origin.kind == "command line":
        return "command line"
    if origin.kind == "user":
        return _place(str(origin.source)) if origin.source and origin.source.file else "given"
    if origin.kind == "checkpoint":
        return f"checkpoint {origin.detail}".rstrip()
    if origin.kind == "record":
        known = origin.detail.startswith("default of ")  # the name stands in the first column already
        return f"record default{f' ({origin.detail})' if origin.detail and not known else ''}"
    if origin.kind == "derived":
        if not origin.inputs:
            return origin.detail or "derived"
        return f"from {', '.join(origin.inputs)}" + (f" ({origin.detail})" if origin.detail else "")
    return f"{origin.kind} {origin.detail}".rstrip()


def _place(text: str) -> str:
    """A file position, relative to the working directory when it is inside it, else with the file's name only."""
    inside = os.getcwd() + os.sep
    return (
        text.removeprefix(inside)
        if text.startswith(inside)
        else text.rsplit(os.sep, 1)[-1]
        if text.startswith(os.sep)
        else text
    )


def show(value: Any) -> str:
    """A value on one line, shortened in the middle of a list rather than cut off."""
    value = plain(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = [show(item) for item in value]
        text = " ".join(items) if items else "none"
        return text if len(text) <= LONGEST_VALUE else f"{' '.join(items[:4])} … ({len(items)} values)"
    if isinstance(value, dict):
        text = ", ".join(f"{key}: {show(item)}" for key, item in value.items())
        return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
    return str(value)


def _bytes_row(row: Row) -> Row:
    """Numbers of bytes with a unit a person can read."""
    name = row.path.rsplit(".", 1)[-1]
    if "bytes" not in name or not isinstance(row.value, (int, float)) or isinstance(row.value, bool):
        return row
    return Row(row.path, human_bytes(row.value), row.origin, row.unit)


def human_bytes(count: float) -> str:
    """``1.07 GB``: decimal units, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g}"


def why_text(path: str, resolution: Resolution) -> str:
    """One value: what it is, where it came from, what it beat, and what its inputs are."""
    origin = resolution.provenance[path]
    value = ""
    if resolution.config is not None:
        found = resolution.config.get(
            path.removeprefix("speculative."), resolution.config.get(f"options.{path.removeprefix('speculative.')}")
        )
        value = f" = {show(found)}"
    lines = [f"{path}{value}", f"  from: {_from(origin)}"]
    lines += [f"  over: {show(beaten)} ({_from(other)})" for other, beaten in origin.over]
    for name in origin.inputs:
        source = resolution.provenance.get(name)
        lines.append(f"  input: {name}{f' ({_from(source)})' if source else ''}")
    return "\n".join(lines)
