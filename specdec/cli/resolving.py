"""Resolving for verbs: a file or the packaged default, overrides, and sweeps over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from specdec.cli.common import split_arguments
from specdec.config.final.speculative_config import Resolution
from specdec.config.findings.diagnostics import Severity

DEFAULT_CONFIG = "default.yaml"


def default_config() -> Path:
    """The configuration that verbs use without a file."""
    return Path(__file__).resolve().parents[1] / DEFAULT_CONFIG


def resolve_all(
    file: str | None, overrides: Sequence[str], multirun: bool = False, strict: bool = False
) -> Iterator[tuple[list[str], Resolution]]:
    """(swept overrides, resolution) for each run; one run with an empty label without ``multirun``."""
    from specdec.config.resolve.resolve import resolve

    path = Path(file) if file else default_config()
    if file is None:
        overrides = [*unread_by_chosen(overrides), *overrides]
    if not multirun:
        yield [], resolve(path, overrides, strict=strict)
        return
    from specdec.config.read.overrides import expand_sweep

    for combination in expand_sweep(overrides):
        yield list(combination), resolve(path, combination, strict=strict)


def with_checkpoints(resolution: Resolution, strict: bool = False) -> Resolution:
    """For verbs that read checkpoints: a path that is not there is an error, a hub id that is not cached a warning.

    With ``strict`` the warning is an error too.
    """
    changed = [replace(d, severity=_severity(d.code, d.severity, strict)) for d in resolution.diagnostics]
    broken = any(d.severity == "error" for d in changed)
    return replace(resolution, diagnostics=tuple(changed), config=None if broken else resolution.config)


def _severity(code: str, severity: Severity, strict: bool) -> Severity:
    if code == "checkpoint-not-found":
        return "error"
    return ("error" if strict else "warning") if code == "checkpoint-not-cached" else severity


def resolve_one(verb: str, items: Sequence[str], strict: bool = False) -> Resolution | None:
    """The resolution of one file (or the packaged default) and overrides; None after a message for several files."""
    files, overrides = split_arguments(items)
    if len(files) > 1:
        print(f"specdec {verb}: error: one file at a time, got {', '.join(files)}", file=sys.stderr)
        return None
    _, resolution = next(iter(resolve_all(files[0] if files else None, overrides, strict=strict)))
    return resolution


def unread_by_chosen(overrides: Sequence[str]) -> list[str]:
    """Removals of the packaged default's options that another method, chosen by an override, does not read."""
    from specdec.config.read.source import load
    from specdec.config.schema.checker import all_records

    chosen = [
        value for key, _, value in (o.partition("=") for o in overrides) if key in ("speculative", "speculative.method")
    ]
    try:
        record, _ = all_records().resolve_name(chosen[-1]) if chosen else (None, None)
    except KeyError:
        return []
    written = {o.partition("=")[0].lstrip("~") for o in overrides}
    keys = [f"speculative.{key}" for key in load(default_config()).data["speculative"] if key != "method"]
    unread = [key for key in keys if record is not None and key.partition(".")[2] not in record.options]
    return [f"~{key}" for key in unread if key not in written]
