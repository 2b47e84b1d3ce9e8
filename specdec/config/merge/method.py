"""Which record runs: the one the user named, checked against the checkpoint; else the one the checkpoint declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.config.checkpoint import (
    Checkpoint,
    check_method,
    detect,
    in_speculators_format,
    load_checkpoint,
    matching_targets,
)
from specdec.config.checkpoint.facts.detect import Detection
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin, Source
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.config_overrides import override_config
from specdec.config.records.registry import Registry

MODEL = "model"


@dataclass(frozen=True)
class DraftCheckpoint:
    """The draft's checkpoint, or None; ``same`` when its weights are part of the target's checkpoint."""

    checkpoint: Checkpoint | None
    same: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()
    overrides: Found | None = None  # keys of its config that the user replaced

    def overridden(self, overrides: Found | None) -> DraftCheckpoint:
        """With the user's ``hf_overrides`` applied before anything is read from it."""
        if self.checkpoint is None or overrides is None or not isinstance(overrides.value, Mapping):
            return self
        config = override_config(self.checkpoint.config, overrides.value)
        return replace(self, checkpoint=self.checkpoint.with_config(config), overrides=overrides)


@dataclass(frozen=True)
class Choice:
    """``record`` is None when there are errors."""

    record: SpeculatorRecord | None
    origin: Origin = field(default_factory=lambda: Origin("derived"))
    implied: Mapping[str, Any] = field(default_factory=dict)  # options that the written name stands for
    diagnostics: tuple[Diagnostic, ...] = ()


def find_draft(
    record: SpeculatorRecord | None,
    model: str | None,
    given: Checkpoint | None,
    target: Checkpoint | None,
    target_model: str | None,
) -> DraftCheckpoint:
    """Given config first, then the path, then the target's own checkpoint where the method may live inside it."""
    if record is not None and MODEL not in record.options:
        return DraftCheckpoint(None)
    if model is not None and model == target_model and target is not None:
        return DraftCheckpoint(replace(target, role="draft"), same=True)
    if given is not None:
        return DraftCheckpoint(given)
    if model is not None:
        checkpoint, findings = load_checkpoint(model, role="draft")
        return DraftCheckpoint(checkpoint, diagnostics=tuple(as_unknown(d) for d in findings))
    if target is not None and in_speculators_format(target):
        return DraftCheckpoint(replace(target, role="draft"))
    if record is not None and not record.options[MODEL].required:
        return DraftCheckpoint(replace(target, role="draft") if target else None, same=True)
    return DraftCheckpoint(None)


def as_unknown(finding: Diagnostic) -> Diagnostic:
    """A path that does not exist here may exist where the config runs: then nothing in it was checked, which is no fault."""
    if finding.code != "checkpoint-not-found":
        return finding
    return replace(finding, severity="note", message=f"{finding.message}, so nothing in it was checked")


def choose(
    record: SpeculatorRecord | None, origin: Origin, draft: DraftCheckpoint, target: Checkpoint | None,
    model: str | None, registry: Registry,
) -> Choice:  # fmt: skip
    """The named record after its check, or the detected one; errors name both sides."""
    if record is not None:
        findings = []
        if draft.checkpoint is not None and not draft.same:
            findings = [_placed(d, origin.source) for d in check_method(record, draft.checkpoint, registry)]
        findings += target_verdict(record, target, registry, origin.source)
        return Choice(None if findings else record, origin, diagnostics=tuple(findings))
    found = detect(registry, draft.checkpoint, target)
    if found.known_not_implemented is not None:
        family = found.known_not_implemented
        message = f"the draft is {family.title}: {family.message}"
        fix = "use a draft of a method from 'specdec list'"
        return Choice(
            None, diagnostics=(Diagnostic("draft-not-implemented", "error", "speculative.model", message, fix),)
        )
    if found.record is None:
        return Choice(None, diagnostics=(_not_inferable(found, draft, target, model, registry),))
    detected = registry.records[found.record]
    evidence = "; ".join(found.evidence) or "nothing more specific is declared"
    verdict = target_verdict(detected, target, registry, None)
    return Choice(None if verdict else detected, Origin("checkpoint", evidence), diagnostics=tuple(verdict))


def target_verdict(
    record: SpeculatorRecord, target: Checkpoint | None, registry: Registry, source: Source | None
) -> list[Diagnostic]:
    """An error when a target record denies the method or allows only others."""
    family = {record.name, *record.extends}
    for rule in matching_targets(registry, target):
        denied = family & set(rule.denied_methods)
        if not denied and (rule.allowed_methods is None or family & set(rule.allowed_methods)):
            continue
        allowed = ", ".join(rule.allowed_methods) if rule.allowed_methods else ""
        message = f"the target {rule.name} does not work with method {record.name!r}"
        message += f": {rule.reason}" if rule.reason else ""
        message += f"; it allows {allowed}" if allowed else ""
        fix = (
            f"use {allowed.replace(', ', ' or ')}"
            if allowed
            else f"use a method other than {', '.join(rule.denied_methods)}"
        )
        return [Diagnostic("method-denied-by-target", "error", "speculative.method", message, fix, source)]
    return []


def _placed(finding: Diagnostic, source: Source | None) -> Diagnostic:
    return replace(finding, source=source) if finding.path == "speculative.method" else finding


def _not_inferable(
    found: Detection, draft: DraftCheckpoint, target: Checkpoint | None, model: str | None, registry: Registry
) -> Diagnostic:
    checkpoint = draft.checkpoint
    if checkpoint is not None:
        declared = ", ".join(checkpoint.architectures) or "no architectures"
        message = f"no method is given, and the draft (model_type {checkpoint.model_type or 'none'}, {declared}) declares none that is known"
    elif model is not None:
        message = f"no method is given, and what {model} declares cannot be read"
    else:
        message = "no method is given, and there is no draft checkpoint that declares one"
    candidates = list(found.candidates) or _candidates(checkpoint, model, target, registry)
    fix = "set speculative.method" + (
        f" to {' or '.join(candidates)}" if candidates else "; 'specdec list' names all methods"
    )
    return Diagnostic("method-not-inferable", "error", "speculative.method", message, fix)


def _candidates(
    checkpoint: Checkpoint | None, model: str | None, target: Checkpoint | None, registry: Registry
) -> list[str]:
    """Methods that fit what is there: those of a draft when one is named, else those that need none."""
    records = [r for r in registry.records.values() if r.capabilities.get("proposes_draft_tokens", True)]
    if checkpoint is not None or model is not None:
        return [
            r.name for r in records if r.options.get(MODEL) is not None and r.options[MODEL].required and not r.extends
        ]
    names = [r.name for r in records if MODEL not in r.options and not r.capabilities.get("combines_speculators")]
    if (
        target is not None
        and (inside := detect(registry, replace(target, role="draft"))).record
        and not inside.fallback
    ):
        names = [str(inside.record), *names]
    return names
