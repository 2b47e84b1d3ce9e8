"""Whether a checkpoint can be run by the record that the user named."""

from __future__ import annotations

from specdec.config.checkpoint.checks.context import finding
from specdec.config.checkpoint.checks.inspect import inspect_draft
from specdec.config.checkpoint.facts.detect import Detection, Identity, detect
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.record import SpeculatorRecord
from specdec.config.records.registry import Registry


def cross_check(
    record: SpeculatorRecord, checkpoint: Checkpoint | None, target: Checkpoint | None, registry: Registry
) -> list[Diagnostic]:
    """Every finding about this pair: the method against what is declared first, then config, tensors and target."""
    if checkpoint is None:
        return []
    mismatch = check_method(record, checkpoint, registry)
    return mismatch or inspect_draft(record, checkpoint, target, registry).diagnostics


def check_method(
    record: SpeculatorRecord, checkpoint: Checkpoint, registry: Registry, detection: Detection | None = None
) -> list[Diagnostic]:
    """An error when the checkpoint declares another method than the one named; silence when it declares nothing."""
    judge = _judge(record, registry)
    if judge is None:
        return []
    found = detection or detect(registry, checkpoint)
    what = _declared(checkpoint)
    if found.known_not_implemented is not None:
        family = found.known_not_implemented
        return [finding("draft-not-implemented", "speculative.model", f"{what} is {family.title}: {family.message}")]
    others = (found.record,) if found.record else found.candidates if found.evidence else ()
    if judge.name in others or any(_takes_over(registry, record, str(name)) for name in others):
        return []
    identity = Identity.of(checkpoint, registry)
    if any(identity.holds(expression, judge) for expression in (judge.declares, judge.accepts)):
        return []
    if others:
        because = f" ({', '.join(found.evidence)})" if found.evidence else ""
        message = f"method {record.name!r} was named, but the checkpoint declares {others[0]}: {what}{because}"
        fix = f"set speculative.method to {others[0]}, or use a checkpoint for {record.name}"
    elif checkpoint.architectures:
        message = (
            f"method {record.name!r} was named, but the checkpoint is none that {record.name} is known to run: {what}"
        )
        fix = f"use a checkpoint for {record.name}, or declare this architecture in a record of your own"
    else:
        return []
    return [finding("method-checkpoint-mismatch", "speculative.method", message, fix)]


def _judge(record: SpeculatorRecord, registry: Registry) -> SpeculatorRecord | None:
    """The record whose declarations count: its own, or those of the nearest one it extends."""
    for name in (record.name, *record.extends):
        candidate = record if name == record.name else registry.records[name]
        if candidate.declares is not None or candidate.accepts is not None:
            return candidate
    return None


def _takes_over(registry: Registry, record: SpeculatorRecord, name: str) -> bool:
    """Whether ``name`` is a more specific record that is reached from the one that was named."""
    pending, seen = [record.name], {record.name}
    while pending:
        current = pending.pop()
        for step in registry.records[current].specializations if current in registry.records else ():
            if step.record == name:
                return True
            if step.record not in seen:
                seen.add(step.record)
                pending.append(step.record)
    return False


def _declared(checkpoint: Checkpoint) -> str:
    architectures = ", ".join(checkpoint.architectures) or "none"
    speculators = checkpoint.config.get("speculators_model_type")
    suffix = f", speculators_model_type {speculators}" if isinstance(speculators, str) else ""
    return f"model_type {checkpoint.model_type or 'none'}, architectures [{architectures}]{suffix}"
