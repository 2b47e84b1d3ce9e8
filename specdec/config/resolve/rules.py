"""The rules of records and the compatibility table, run over all known values; what is not known is not judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.findings.paths import parse_path
from specdec.config.language.expressions import ExpressionError, Scope
from specdec.config.language.record import RuleSpec, SpeculatorRecord
from specdec.config.merge.options import Block, K

OPTION = "options."


def run_rules(rules: Iterable[RuleSpec], scope: Scope, values: Mapping[str, Any], block: Block) -> list[Diagnostic]:
    """A finding for each rule that applies and does not hold."""
    findings = []
    for rule in rules:
        if rule.about_tensors:
            continue  # judged where the checkpoint was inspected
        try:
            if broken(rule, scope, values, block):
                findings.append(report(rule, scope, values, block))
        except ExpressionError as error:
            message = f"the rule {rule.id!r} cannot be evaluated: {error.message}"
            findings.append(
                Diagnostic("record-expression", "error", rule.at, message, "correct the record", rule.source)
            )
    return findings


def broken(rule: RuleSpec, scope: Scope, values: Mapping[str, Any], block: Block) -> bool:
    """Whether the rule applies and its check is false; a rule about a faulty value is not judged."""
    compiled = [scope.compile(expression) for expression in (rule.when, rule.check) if expression]
    if any(_faulty(name, block) for c in compiled for name in (*c.names, *c.asked)):
        return False
    return scope.holds(rule.when, values) is True and scope.holds(rule.check, values) is False


def report(rule: RuleSpec, scope: Scope, values: Mapping[str, Any], block: Block) -> Diagnostic:
    """The finding of a broken rule, at the place in the user's file where there is one."""
    at = placed(rule.at, block)
    fix = scope.text(rule.fix, values) if rule.fix else None
    return Diagnostic(
        rule.code or rule.id, rule.severity, at, scope.text(rule.message, values), fix, source_of(at, block)
    )


def placed(at: str, block: Block) -> str:
    """A rule's path under the block's own: ``speculative.tree`` of the second of a chain is ``speculative[1].tree``."""
    head, dot, rest = at.partition(".")
    return f"{block.label}{dot}{rest}" if head == "speculative" else at


def source_of(at: str, block: Block) -> Any:
    """Where the value at a path is written; None for checkpoint paths."""
    head = at.partition(".")[0]
    return None if head == "draft" else block.composed.locate(parse_path(at), False)


def check_compatibility(
    record: SpeculatorRecord, features: Mapping[str, Any], scope: Scope, values: Mapping[str, Any], block: Block
) -> list[Diagnostic]:
    """An error for each engine feature in use that the record does not support."""
    findings = []
    for name, feature in features.items():
        if feature.when is None:
            continue
        try:
            in_use = scope.holds(feature.when, values) is True
        except ExpressionError:
            continue  # asks for an option that this speculator does not have
        reason = unsupported(record, name, scope, values) if in_use else None
        if reason is None:
            continue
        compiled = scope.compile(feature.when)
        named = next(iter((*compiled.names, *compiled.asked)), "engine")
        at = f"{block.label}.{named.removeprefix(OPTION)}" if named.startswith(OPTION) else named
        message = f"{name} ({feature.title}) does not work with {record.name}: {reason}"
        fix = "turn it off, or choose a method that supports it ('specdec list' has the table)"
        findings.append(Diagnostic("unsupported-combination", "error", at, message, fix, source_of(at, block)))
    return findings


def unsupported(record: SpeculatorRecord, feature: str, scope: Scope, values: Mapping[str, Any]) -> str | None:
    """Why the record does not support a feature, or None when it does."""
    entry = record.compatibility.get(feature)
    if entry is None:
        return None
    if entry.get("supported", True) and entry.get("when"):
        return None if scope.holds(entry["when"], values) is not False else str(entry.get("reason", "not supported"))
    return None if entry.get("supported", True) else str(entry.get("reason", "not supported"))


def _faulty(name: str, block: Block) -> bool:
    if name == "k":
        return block.tainted(K)
    return block.tainted(name.removeprefix(OPTION)) if name.startswith(OPTION) else name in block.composed.tainted
