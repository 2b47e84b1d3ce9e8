"""A list of speculators in order of priority, resolved one by one and put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specdec.config.final.hashing import digest
from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.final.verification import METHOD
from specdec.config.findings.diagnostics import Diagnostic, Origin
from specdec.config.findings.paths import Step, format_path
from specdec.config.language.namespace import plain
from specdec.config.language.options_model import validate_options
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.options import Block, K
from specdec.config.read.inputs import shown
from specdec.config.resolve.examine import Shared
from specdec.config.resolve.rules import run_rules
from specdec.config.resolve.single import Outcome, resolve_speculator
from specdec.config.schema.compose import MEMBERS
from specdec.config.schema.known import SPECULATIVE

COMBINES = "combines_speculators"  # the capability of the record that runs a chain
LARGEST = (
    "verify_width",
    "num_lookahead_tokens",
    "max_num_new_slots_for_drafting",
    "num_prefill_lookahead_tokens",
    "num_hash_lookahead_tokens",
)
SUMMED = (
    "draft_weight_bytes",
    "draft_kv_bytes_per_token",
    "draft_logits_bytes",
    "draft_pass_bytes",
    "draft_round_bytes",
)
SMALLEST = ("max_model_len", "max_num_active_seqs")  # engine limits that speculation may lower


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
    broken = faults_of_list(record, path, block, shared)
    if broken:
        return Outcome(diagnostics=tuple(broken))
    outcomes = [
        resolve_speculator((*path, i), shared, outer) for i, member in enumerate(block) if isinstance(member, dict)
    ]
    findings = tuple(d for outcome in outcomes for d in outcome.diagnostics)
    members = [outcome.config for outcome in outcomes if outcome.config is not None]
    if len(members) != len(block):
        return Outcome(diagnostics=findings)
    if faults := disagreements(path, members, shared):
        return Outcome(diagnostics=(*findings, *faults))
    shared_options = options_of(record, outer, members, shared)
    origins = provenance_of(outcomes, format_path(path))
    typed, wrong = typed_options(record, shared_options, members, format_path(outer))
    if wrong:
        return Outcome(diagnostics=(*findings, *wrong))
    return Outcome(combine(record, members, shared_options, typed, origins), findings, origins)


def faults_of_list(
    record: SpeculatorRecord, path: tuple[Step, ...], block: list[Any], shared: Shared
) -> list[Diagnostic]:
    """What the record's rules say about the list itself; chains do not nest."""
    about = [rule for rule in record.rules if rule.at == f"{SPECULATIVE}.{MEMBERS}"]
    values = {f"options.{MEMBERS}": block}
    found = run_rules(about, shared.registry.scope(record.name), values, Block(shared.composed, (SPECULATIVE,), {}))
    found = [replace(d, path=format_path(path), source=shared.composed.locate(path, False)) for d in found]
    for i, member in enumerate(block):
        name = member.get("method") if isinstance(member, dict) else None
        if isinstance(name, str) and shared.registry.resolve_name(name)[0].capabilities.get(COMBINES):
            at = (*path, i, "method")
            message, fix = "a chain cannot be a member of a chain", "list its speculators here, in order of priority"
            source = shared.composed.locate(at, False)
            found.append(Diagnostic("unsupported-combination", "error", format_path(at), message, fix, source))
    return found


def disagreements(path: tuple[Step, ...], members: list[SpeculativeConfig], shared: Shared) -> list[Diagnostic]:
    """Errors for members that want other verification than the first: one verifier judges the drafts of all.

    A member that drafts nothing has no say.
    """
    judged = [member for member in members if METHOD in member.options]
    first, found = (judged or members)[0], []
    for i, member in enumerate(members):
        if METHOD not in member.options:
            continue
        mode = member.verification[METHOD]
        names = [METHOD, *(n for n in member.options if n.startswith(f"{mode}_"))]
        differs = [n for n in names if member.options.get(n) != first.options.get(n)]
        if not differs:
            continue
        ours, theirs = (m.options.get(differs[0]) for m in (member, first))
        at = (*path, i, differs[0])
        message = (
            f"{differs[0]} is {shown(ours)} here and {shown(theirs)} for {first.method}; a chain verifies in one way"
        )
        source = shared.composed.locate(at, False) or shared.composed.locate((*path, i), False)
        fix = "give all members the same value"
        found.append(Diagnostic("conflicting-values", "error", format_path(at), message, fix, source))
    return found


def options_of(
    record: SpeculatorRecord, outer: tuple[Step, ...], members: list[SpeculativeConfig], shared: Shared
) -> dict[str, Any]:
    """Options that the chain's own block sets, and the members as blocks."""
    block = Block(shared.composed, outer, {})
    values: dict[str, Any] = {}
    for name, spec in record.options.items():
        written = block.candidates([spec.name, *spec.aliases]) if outer else []
        if written and name not in (MEMBERS, K):
            values[name] = written[0][1]
    return {**values, MEMBERS: [m.source[SPECULATIVE] for m in members]}


def typed_options(
    record: SpeculatorRecord, options: Mapping[str, Any], members: Sequence[SpeculativeConfig], label: str
) -> tuple[Any, list[Diagnostic]]:
    """The chain's options as its record's model: those it sets, those that its members share, the longest member's k."""
    first = members[0].options
    shared = {name: first[name] for name in record.options if name in first and name not in (K, MEMBERS)}
    longest = max(member.num_speculative_tokens for member in members)
    return validate_options(record, plain({**shared, **options, K: longest}), at=label or SPECULATIVE)


def provenance_of(outcomes: list[Outcome], label: str) -> dict[str, Origin]:
    """The origins of all members; groups that all share (``target``, ``engine``) come from the first."""
    merged: dict[str, Origin] = {}
    for outcome in reversed(outcomes):
        merged |= outcome.provenance
    merged["speculative.method"] = Origin("derived", "a list of speculators", inputs=("speculative",))
    members = tuple(f"{label}[{i}]" for i in range(len(outcomes)))
    merged |= {f"numbers.{name}": Origin("derived", "largest of the members", inputs=members) for name in LARGEST}
    merged[f"{SPECULATIVE}.{K}"] = Origin("derived", "longest of the members", inputs=members)
    return merged


def combine(
    record: SpeculatorRecord,
    members: list[SpeculativeConfig],
    options: dict[str, Any],
    typed: Any,
    origins: dict[str, Origin],
) -> SpeculativeConfig:
    """One configuration over several; ``members`` keeps each in full, in order of priority."""
    first = members[0]
    numbers: dict[str, Any] = dict(first.numbers)
    for name in LARGEST:
        numbers[name] = max((m.numbers.get(name) or 0) for m in members)
    limits: list[int] = [
        m.numbers["max_num_draft_seqs"] for m in members if m.numbers.get("max_num_draft_seqs") is not None
    ]
    numbers["max_num_draft_seqs"] = min(limits) if limits else None
    longest = max(members, key=lambda m: (METHOD in m.options, m.num_speculative_tokens))
    captured = sorted({layer for m in members for layer in (m.wiring.get("capture_before_layer") or ())})
    block = {"method": record.name, **options} if len(options) > 1 else options[MEMBERS]
    engine = {**first.engine, **{n: smallest(m.engine.get(n) for m in members) for n in SMALLEST if n in first.engine}}
    return replace(
        first,
        method=record.name,
        record=record,
        num_speculative_tokens=longest.num_speculative_tokens,
        options=typed,
        engine=Namespace(engine),
        numbers=Namespace(numbers),
        verification=longest.verification,
        wiring=Namespace({**first.wiring, "capture_before_layer": captured or None}),
        resources=Namespace(combined_resources([m.resources for m in members])),
        changes=combined_changes(members),
        provenance=origins,
        hash_factors=tuple(m.hash_factors for m in members),
        config_hash=digest({"chain": [m.config_hash for m in members], "options": {**options, MEMBERS: None}}),
        source={**first.source, SPECULATIVE: block},
        members=tuple(members),
    )


def smallest(values: Iterable[Any]) -> Any:
    """The smallest of the values that there are."""
    return min((value for value in values if value is not None), default=None)


def combined_resources(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Memory of all drafts together; a number that one member does not know is not known of the chain."""
    found = dict(members[0])
    for name in SUMMED:
        values = [m.get(name) for m in members]
        found[name] = None if None in values else sum(v for v in values if v is not None)
    target, draft = found.get("target_kv_bytes_per_token"), found["draft_kv_bytes_per_token"]
    per_token = found["kv_bytes_per_token"] = None if target is None or draft is None else target + draft
    states = max(m.get("recurrent_state_bytes") or 0 for m in members)  # of the longest member
    found |= {"recurrent_state_bytes": states} if states else {}
    parts = [found.get("target_weight_bytes"), found["draft_weight_bytes"], found["draft_logits_bytes"], states]
    have = found.get("memory_bytes")
    left = None if have is None or None in parts else max(have - sum(p for p in parts if p is not None), 0)
    return {**found, "kv_bytes": left, "kv_tokens": left // per_token if left is not None and per_token else None}


def combined_changes(members: Sequence[SpeculativeConfig]) -> tuple[Mapping[str, Any], ...]:
    """One change a path, the member's that goes furthest from the value before."""
    found: dict[str, Mapping[str, Any]] = {}
    for change in (c for m in members for c in m.changes):
        known = found.get(change["path"])
        if known is None or abs(change["after"] - change["before"]) > abs(known["after"] - known["before"]):
            found[change["path"]] = change
    return tuple(found.values())
