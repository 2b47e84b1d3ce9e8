"""A plan as text for a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from specdec.config.diagnostics import Origin
from specdec.config.plan import Plan, Row, plain
from specdec.config.render import render_text
from specdec.config.speculative import Resolution

NAME_WIDTH, VALUE_WIDTH = 30, 22
LONGEST_VALUE = 60


def plan_text(plan: Plan, colour: bool = False, width: int | None = None) -> str:
    """Head line, sections in columns, engine changes, warnings."""
    width = width or shutil.get_terminal_size((120, 40)).columns
    parts = [head(plan)]
    for title, rows in plan.sections:
        if title == "resources":
            parts.append("\n".join([title, *(_line(_bytes_row(row), width) for row in rows)]))
        else:
            parts.append("\n".join([title, *(_line(row, width) for row in rows)]))
    changes = [_change(change) for change in plan.config.changes]
    if changes:
        parts.append("\n".join(["changed by speculation", *changes]))
    findings = render_text(plan.diagnostics, colour=colour)
    return "\n\n".join(part for part in (*parts, findings) if part)


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


def _line(row: Row, width: int) -> str:
    name = row.path.split(".", 1)[1]
    value = show(row.value)
    origin = _from(row.origin) if row.origin else ""
    if row.origin is not None and row.origin.over:
        beaten = ", ".join(f"{show(value)} {_from(origin)}" for origin, value in row.origin.over)
        origin += f", over {beaten}"
    line = f"  {name:<{NAME_WIDTH}} {value:<{VALUE_WIDTH}} {origin}".rstrip()
    return line if len(line) <= max(width, 80) else line[: max(width, 80) - 1] + "…"


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
        inputs = f" from {', '.join(origin.inputs)}" if origin.inputs else ""
        return f"derived{inputs}" + (f" ({origin.detail})" if origin.detail else "")
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


def _change(change: Mapping[str, Any]) -> str:
    before, after = show(change.get("before")), show(change.get("after"))
    return f"  {change.get('path', ''):<{NAME_WIDTH}} {before} -> {after}  {change.get('why', '')}".rstrip()


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
