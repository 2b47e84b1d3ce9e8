"""Whether a checkpoint can be run by the record that the user named."""

from __future__ import annotations

from specdec.config.checkpoint.context import finding
from specdec.config.checkpoint.detect import Detection, accepts, declares, detect
from specdec.config.checkpoint.inspect import inspect_draft
from specdec.config.checkpoint.value import Checkpoint
from specdec.config.diagnostics import Diagnostic
from specdec.config.record_types import SpeculatorRecord
from specdec.config.registry import Registry


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
    if record.declares is None and record.accepts is None:
        return []
    found = detection or detect(registry, checkpoint)
    what = _declared(checkpoint)
    if found.known_not_implemented is not None:
        family = found.known_not_implemented
        return [finding("draft-not-implemented", "speculative.model", f"{what} is {family.title}: {family.message}")]
    others = [
        name for name in ((found.record,) if found.record else found.candidates if found.evidence else ()) if name
    ]
    if not others or record.name in others or any(_takes_over(registry, record, name) for name in others):
        return []
    if declares(record, checkpoint) or accepts(record, checkpoint):
        return []
    because = f" ({', '.join(found.evidence)})" if found.evidence else ""
    message = f"method {record.name!r} was named, but the checkpoint declares {others[0]}: {what}{because}"
    fix = f"set speculative.method to {others[0]}, or use a checkpoint for {record.name}"
    return [finding("method-checkpoint-mismatch", "speculative.method", message, fix)]


def _takes_over(registry: Registry, record: SpeculatorRecord, name: str) -> bool:
    """Whether ``name`` is a more specific record that is reached from the one that was named."""
    pending, seen = [record.name], {record.name}
    while pending:
        for step in registry.records[pending.pop()].specializations:
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
