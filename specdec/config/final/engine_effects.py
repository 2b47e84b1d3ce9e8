"""What speculation changes in the engine: slots it takes, requests it limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.merge.ranks import with_beaten

BATCH, SEQS, K = "max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens"


@dataclass(frozen=True)
class Effects:
    """Changed engine values, the list of changes for a reader, and findings."""

    engine: Mapping[str, Found]
    changes: tuple[Mapping[str, Any], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def engine_effects(k: int, numbers: Mapping[str, Any], engine: Mapping[str, Found]) -> Effects:
    """KV slots past the last token; fewer active requests where the draft's own pass needs more rows."""
    batch, seqs = engine.get(BATCH), engine.get(SEQS)
    changed: dict[str, Found] = {}
    changes: list[Mapping[str, Any]] = []
    findings: list[Diagnostic] = []
    lookahead = numbers.get("num_lookahead_tokens") or 0
    if lookahead:
        why = f"{K} {k} needs {lookahead} KV slots past each request's last token"
        changes.append({"path": "engine.lookahead_slots_per_request", "before": 0, "after": lookahead, "why": why})
    if batch is None or seqs is None:
        return Effects(changed, tuple(changes))
    limit = numbers.get("max_num_draft_seqs")
    if limit is not None and limit < seqs.value:
        why = f"the draft's own pass takes {batch.value // max(limit, 1)} rows a request of {BATCH} {batch.value}"
        inputs = (f"engine.{BATCH}", f"speculative.{K}")
        origin = Origin("derived", why, inputs=inputs)
        changed["max_num_active_seqs"] = Found(limit, with_beaten(origin, [(seqs.origin, seqs.value)]))
        changes.append({"path": "engine.max_num_active_seqs", "before": seqs.value, "after": limit, "why": why})
        message = f"at most {limit} of {SEQS} {seqs.value} requests can be drafted for at a time: {why}"
        fix = f"raise engine.{BATCH} to {(batch.value // max(limit, 1)) * seqs.value}, or lower {SEQS}"
        findings.append(Diagnostic("engine-limit-lowered", "warning", "engine.max_num_active_seqs", message, fix))
    return Effects(changed, tuple(changes), tuple(findings))
