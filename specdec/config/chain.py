"""A list of speculators in order of priority, resolved one by one and put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdec.config.compose import MEMBERS
from specdec.config.diagnostics import Diagnostic, Origin
from specdec.config.examine import Shared
from specdec.config.hashing import digest
from specdec.config.known import SPECULATIVE
from specdec.config.paths import Step, format_path
from specdec.config.record_types import SpeculatorRecord
from specdec.config.speculative import Namespace, SpeculativeConfig
from specdec.config.speculator import Outcome, resolve_speculator

COMBINES = "combines_speculators"  # the capability of the record that runs a chain
LARGEST = (
    "verify_width",
    "num_lookahead_tokens",
    "max_num_new_slots_for_drafting",
    "num_prefill_lookahead_tokens",
    "num_hash_lookahead_tokens",
)


def members_path(shared: Shared) -> tuple[Step, ...] | None:
    """Where the members of a chain are listed: under ``speculative:`` itself, or as the option of a chain's record."""
    block = shared.composed.data.get(SPECULATIVE)
    if isinstance(block, list):
        return (SPECULATIVE,)
    if (
        not isinstance(block, dict)
        or not isinstance(block.get(MEMBERS), list)
        or not isinstance(block.get("method"), str)
    ):
        return None
    record, _ = shared.registry.resolve_name(block["method"])
    return (SPECULATIVE, MEMBERS) if record.capabilities.get(COMBINES) else None


def resolve_chain(path: tuple[Step, ...], shared: Shared) -> Outcome:
    """Every member on its own; the chain drafts as many tokens as its longest member and owes the engine the largest numbers."""
    block: Any = shared.composed.data
    for step in path:
        block = block[step]
    record = next((r for r in shared.registry.records.values() if r.capabilities.get(COMBINES)), None)
    if record is None or not block:
        message = "an empty list drafts nothing" if not block else "no record combines speculators"
        at = format_path(path)
        return Outcome(diagnostics=(Diagnostic("method-not-inferable", "error", at, message, "write one speculator"),))
    outer = path[:-1]
    outcomes = [
        resolve_speculator((*path, i), shared, outer) for i, member in enumerate(block) if isinstance(member, dict)
    ]
    findings = tuple(d for outcome in outcomes for d in outcome.diagnostics)
    members = [outcome.config for outcome in outcomes]
    if any(member is None for member in members) or len(members) != len(block):
        return Outcome(diagnostics=findings)
    return Outcome(combine(record, [m for m in members if m is not None]), findings, provenance_of(outcomes))


def provenance_of(outcomes: list[Outcome]) -> dict[str, Origin]:
    """The origins of all members; groups that all share (``target``, ``engine``) come from the first."""
    merged: dict[str, Origin] = {}
    for outcome in reversed(outcomes):
        merged |= outcome.provenance
    merged["speculative.method"] = Origin("derived", "a list of speculators", inputs=("speculative",))
    return merged


def combine(record: SpeculatorRecord, members: list[SpeculativeConfig]) -> SpeculativeConfig:
    """One configuration over several; ``members`` keeps each in full, in order of priority."""
    first = members[0]
    numbers: dict[str, Any] = dict(first.numbers)
    for name in LARGEST:
        numbers[name] = max((m.numbers.get(name) or 0) for m in members)
    limits: list[int] = [
        m.numbers["max_num_draft_seqs"] for m in members if m.numbers.get("max_num_draft_seqs") is not None
    ]
    numbers["max_num_draft_seqs"] = min(limits) if limits else None
    k = max(m.num_speculative_tokens for m in members)
    guarantees = {m.verification["guarantee"] for m in members}
    verification = {
        **first.verification,
        "guarantee": "lossy" if "lossy" in guarantees else first.verification["guarantee"],
    }
    captured = sorted({layer for m in members for layer in (m.wiring.get("capture_before_layer") or ())})
    source = {**first.source, "speculative": [m.source["speculative"] for m in members]}
    return replace(
        first,
        method=record.name,
        record=record,
        num_speculative_tokens=k,
        options=Namespace({"speculators": [m.source["speculative"] for m in members]}),
        numbers=Namespace(numbers),
        verification=Namespace(verification),
        wiring=Namespace({**first.wiring, "capture_before_layer": captured or None}),
        changes=tuple(change for m in members for change in m.changes),
        hash_factors=tuple(m.hash_factors for m in members),
        config_hash=digest({"chain": [m.config_hash for m in members]}),
        source=source,
        members=tuple(members),
    )
