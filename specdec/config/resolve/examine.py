"""What is known about a speculator under one record: facts of its checkpoint, merged options, values of expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specdec.config.checkpoint import Checkpoint, Identity, inspect_draft, matches
from specdec.config.checkpoint.facts.keys import lookup
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.expressions import ExpressionError, Scope
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.config_overrides import overridden_fact, overridden_key
from specdec.config.merge.method import MODEL, DraftCheckpoint
from specdec.config.merge.options import Block, K, merge_options
from specdec.config.merge.settings import Settings
from specdec.config.merge.target_side import Target
from specdec.config.schema.compose import Composed

UNREADABLE_AT = "draft.model_type"  # where a config that breaks its format's contract is reported


@dataclass(frozen=True)
class Shared:
    """What all speculators of a file have in common."""

    composed: Composed
    settings: Settings
    target: Target
    given: Checkpoint | None  # the draft_config of the caller
    registry: Any


@dataclass(frozen=True)
class State:
    """All that is known about a speculator under one record."""

    record: SpeculatorRecord
    block: Block
    draft: DraftCheckpoint
    facts: Mapping[str, Found]
    options: Mapping[str, Found]
    scope: Scope
    values: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...]
    readable: bool = True  # False: the config breaks the contract of its format, so its facts are not known

    @property
    def k(self) -> int | None:
        """Tokens drafted per round."""
        return self.options[K].value if K in self.options else None

    def without(self, wrong: Iterable[str]) -> State:
        """The same with options whose values are not to be believed, so that nothing is judged by them."""
        bad = frozenset(wrong)
        composed = replace(self.block.composed, tainted=self.block.composed.tainted | {self.block.at(n) for n in bad})
        gone = {f"options.{name}" for name in bad} | ({"k"} if K in bad else set())
        return replace(
            self,
            block=replace(self.block, composed=composed),
            options={name: found for name, found in self.options.items() if name not in bad},
            values={name: value for name, value in self.values.items() if name not in gone},
        )


def examine(record: SpeculatorRecord, block: Block, draft: DraftCheckpoint, shared: Shared) -> State:
    """Facts of the checkpoint under this record, and options merged over them."""
    facts: dict[str, Found] = {}
    findings: list[Diagnostic] = []
    rewritten = readable = False
    if draft.checkpoint is not None and MODEL in record.options:
        inspection = inspect_draft(
            record, draft.checkpoint, shared.target.checkpoint, shared.registry, same_checkpoint=draft.same
        )
        facts, findings = dict(inspection.facts), list(inspection.diagnostics)
        readable = not any(d.severity == "error" and d.path == UNREADABLE_AT for d in findings)
        facts |= n_predict_origin(record, draft.checkpoint, facts)
        rewritten = any(matches(row.when, draft.checkpoint.config) for row in record.rewrites)
        if draft.same:
            findings = [
                replace(d, path=d.path.replace("draft.", "target.", 1)) if d.path.startswith("draft.") else d
                for d in findings
            ]
            overrides = shared.settings.target.get("hf_overrides")
            facts = {n: from_overrides(f, overrides) for n, f in facts.items()} if overrides else facts
            findings = [d for d in findings if d.code != "unknown-checkpoint-field"]
        if draft.overrides is not None:
            facts = {n: overridden_fact(f, draft.overrides) for n, f in facts.items()}
    scope = shared.registry.scope(record.name)
    values = base_values(facts, draft, shared, rewritten)
    options, wrong = merge_options(record, block, facts, scope, values)
    values |= {f"options.{name}": found.value for name, found in options.items()}
    if K in options:
        values["k"] = options[K].value
    return State(
        record,
        block,
        draft,
        facts,
        options,
        scope,
        values,
        tuple([*findings, *wrong]),
        readable or draft.checkpoint is None,
    )


def base_values(facts: Mapping[str, Found], draft: DraftCheckpoint, shared: Shared, rewritten: bool) -> dict[str, Any]:
    """Values of expressions that do not depend on options."""
    target = shared.target
    values: dict[str, Any] = {f"draft.{name}": found.value for name, found in facts.items()}
    values |= {f"target.{name}": found.value for name, found in {**target.facts, **target.settings}.items()}
    values |= {f"engine.{name}": found.value for name, found in shared.settings.engine.items()}
    values |= {f"sampling.{name}": found.value for name, found in shared.settings.sampling.items()}
    if "max_model_len" in target.settings:
        values["engine.max_model_len"] = target.settings["max_model_len"].value
    values["draft.same_checkpoint"] = draft.same
    values["draft.rewrite_matches"] = rewritten
    values["has_draft"] = draft.checkpoint is not None
    return values


def n_predict_origin(record: SpeculatorRecord, checkpoint: Checkpoint, facts: Mapping[str, Found]) -> dict[str, Found]:
    """``n_predict`` that a rewrite row took from another key: the origin names that key."""
    found = facts.get("n_predict")
    if found is None or lookup(checkpoint.config, "n_predict") is not None:
        return {}
    for row in record.rewrites:
        keys = (row.n_predict or {}).get("key", ()) if matches(row.when, checkpoint.config) else ()
        for key in [keys] if isinstance(keys, str) else keys:
            if lookup(checkpoint.config, key) is not None:
                return {"n_predict": Found(found.value, Origin("checkpoint", key))}
    return {}


def from_overrides(found: Found, overrides: Found) -> Found:
    """A fact of a draft inside the target's checkpoint that the target's ``hf_overrides`` set."""
    if found.origin.kind != "checkpoint" or not overridden_key(found.origin.detail, overrides.value):
        return found
    detail = f"{overrides.origin.detail} (same checkpoint)"
    return Found(found.value, Origin("target", detail, overrides.origin.source, (f"target.{found.origin.detail}",)))


def specialized(state: State, registry: Any) -> SpeculatorRecord | None:
    """The more specific record that takes over, or None."""
    for step in state.record.specializations:
        child: SpeculatorRecord = registry.records[step.record]
        if step.when == "declares":
            if state.draft.checkpoint is not None and Identity.of(state.draft.checkpoint, registry).holds(
                child.declares, child
            ):
                return child
            continue
        try:
            if registry.scope(child.name).holds(step.when, state.values) is True:
                return child
        except ExpressionError:
            continue
    return None
