"""Rules of a record about tensors: what the config says against what the weights show."""

from __future__ import annotations

from collections.abc import Iterator

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.expressions import ExpressionError, Scope
from specdec.config.language.functions import tensors


def check_tensors(context: CheckContext, scope: Scope, same: bool) -> Iterator[Diagnostic]:
    """Judges each rule of the record that asks for tensors; ``same``: they are the target's own."""
    rules = [rule for rule in context.record.rules if rule.about_tensors] if context.shapes is not None else []
    values = {f"draft.{name}": found.value for name, found in context.facts.items()}
    values |= {f"target.{name}": found.value for name, found in context.target_facts.items()}
    values["draft.same_checkpoint"] = same
    with tensors(context.shapes):
        for rule in rules:
            try:
                if scope.holds(rule.when, values) is not True or scope.holds(rule.check, values) is not False:
                    continue
            except ExpressionError as error:
                message = f"the rule {rule.id!r} cannot be evaluated: {error.message}"
                yield finding("record-expression", rule.at, message, "correct the record")
                continue
            group, _, name = rule.at.partition(".")
            at = context.at(name) if group == "draft" and name in context.record.facts else rule.at
            fix = scope.text(rule.fix, values) if rule.fix else None
            yield finding(rule.code, at, scope.text(rule.message, values), fix, rule.severity)
