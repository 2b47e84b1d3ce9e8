"""Merged options as the record's typed model: whatever a value came from, it has the type and range of its option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.findings.paths import parse_path
from specdec.config.language.namespace import plain
from specdec.config.language.options_model import validate_options
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.options import Block


def validated(
    record: SpeculatorRecord, block: Block, options: Mapping[str, Found], side: str = "draft"
) -> tuple[Any, dict[str, Diagnostic]]:
    """An instance of the record's model, or None and a finding by option, at the checkpoint's key where one says it.

    ``side``: ``draft`` or ``target``, the checkpoint that the draft's facts stand in. What is missing is not judged here.
    """
    given = {name: plain(found.value) for name, found in options.items() if not block.tainted(name)}
    sources = {name: found.origin.source for name, found in options.items() if found.origin.source is not None}
    typed, findings = validate_options(record, given, sources, block.label)
    wrong: dict[str, Diagnostic] = {}
    for found in findings:
        name = str(parse_path(found.path)[len(block.path)])
        if name in options:
            wrong.setdefault(name, _placed(found, options[name].origin, side))
    return typed, wrong


def _placed(finding: Diagnostic, origin: Origin, side: str) -> Diagnostic:
    if origin.kind == "checkpoint":
        message = f"{origin.detail} gives {finding.message}"
        return replace(finding, path=f"{side}.{origin.detail}", message=message)
    if origin.kind == "derived":
        return replace(finding, message=f"{finding.message} (from {origin.detail})")
    return finding
