"""One speculator, from its block of the file to a finalized configuration or to errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.config.checkpoint import Checkpoint, Identity, inspect_draft, matches, matching_targets
from specdec.config.checkpoint.keys import lookup
from specdec.config.compose import Composed
from specdec.config.diagnostics import Diagnostic, Found, Origin
from specdec.config.expressions import MISSING, ExpressionError, Scope, record_scope
from specdec.config.finalize import Draft, Parts, finalize
from specdec.config.inherit import Side, check_quantization, check_settings, draft_model_len, draft_settings
from specdec.config.inputs import at_path
from specdec.config.known import SPECULATIVE
from specdec.config.memory import kv_bytes_per_token, weight_bytes
from specdec.config.merge import with_beaten
from specdec.config.method import MODEL, DraftCheckpoint, choose, find_draft
from specdec.config.options import Block, K, merge_options, missing
from specdec.config.paths import Step
from specdec.config.record_types import Alias, SpeculatorRecord
from specdec.config.rules import check_compatibility, run_rules
from specdec.config.settings import Settings, read_settings, written
from specdec.config.speculative import SpeculativeConfig
from specdec.config.target_side import Target, attention_of, overridden_key
from specdec.config.wiring import GUESSED, aux_layers

CACHE_ONLY = frozenset({"default", "linear", "llama3", "ntk", "proportional"})  # the position count only sizes a table
MAX_HOPS = 8  # records that take over from each other


@dataclass(frozen=True)
class Shared:
    """What all speculators of a file have in common."""

    composed: Composed
    settings: Settings
    target: Target
    given: Checkpoint | None  # the draft_config of the caller
    registry: Any


@dataclass(frozen=True)
class Outcome:
    """``config`` is None when there are errors."""

    config: SpeculativeConfig | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    provenance: Mapping[str, Origin] = field(default_factory=dict)


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

    @property
    def k(self) -> int | None:
        """Tokens drafted per round."""
        return self.options[K].value if K in self.options else None


def resolve_speculator(path: tuple[Step, ...], shared: Shared, outer: tuple[Step, ...] = ()) -> Outcome:
    """Method, checkpoint, options, rules and numbers of the block at ``path``; ``outer`` is the chain it is a member of."""
    composed, registry = shared.composed, shared.registry
    block = Block(composed, path, {}, outer)
    record, origin, named = None, Origin("derived"), written(composed, (*path, "method"))
    notices: tuple[Diagnostic, ...] = ()
    if named:
        record, alias = registry.resolve_name(named[0][1])
        origin = with_beaten(named[0][0], named[1:])
        block = replace(block, implied=alias.implies if alias else {})
        notices = alias_notice(named[0][1], record, alias, block)
    models = block.candidates(model_names(registry))
    model = models[0][1] if models else None
    draft = find_draft(record, model, shared.given or shared.target.speculators, shared.target.checkpoint, shared.settings.value("target", MODEL))
    if shared.given is None and model is not None and draft.checkpoint is shared.target.speculators:
        draft = find_draft(record, model, None, shared.target.checkpoint, shared.settings.value("target", MODEL))
    chosen = choose(record, origin, draft, shared.target.checkpoint, model, registry)
    shared = with_defaults(shared, chosen.record)
    findings = (*notices, *draft.diagnostics, *(at_block(d, block) for d in chosen.diagnostics))
    if chosen.record is None:
        return Outcome(diagnostics=findings, provenance={f"{block.label}.method": origin} if named else {})
    record, origin = chosen.record, chosen.origin
    state = examine(record, block, draft, shared)
    for _ in range(MAX_HOPS):
        more_specific = specialized(state, registry)
        if more_specific is None:
            break
        detail = f"{more_specific.name} takes over from {state.record.name}"
        inputs = tuple(f"draft.{n}" for n in ("architectures", "model_type") if n in state.facts)
        origin = Origin("derived", detail, origin.source, inputs, ((origin, state.record.name), *origin.over))
        state = examine(more_specific, block, draft, shared)
    refused = refused_options(state, record if named else None, shared)
    findings = (*findings, *refused, *(at_block(d, block) for d in state.diagnostics))
    if refused:
        bad = frozenset(d.path for d in refused)
        state = replace(state, block=replace(block, composed=replace(composed, tainted=composed.tainted | bad)))
    return complete(state, origin, findings, shared)


def with_defaults(shared: Shared, record: SpeculatorRecord | None) -> Shared:
    """Engine settings that nobody wrote, as the speculator's record asks for them, else as the target's does."""
    ranked = []
    if record is not None:
        ranked.append((Origin("record", f"asked for by {record.name}"), engine_defaults(record.defaults)))
    for rule in matching_targets(shared.registry, shared.target.checkpoint):
        ranked.append((Origin("target", f"asked for by target {rule.name}"), engine_defaults(rule.defaults)))
    if not any(values for _, values in ranked):
        return shared
    return replace(shared, settings=read_settings(shared.composed, ranked))


def engine_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of ``defaults`` that are engine settings."""
    return {name: value for name, value in defaults.items() if name.startswith("engine.")}


def alias_notice(name: str, record: SpeculatorRecord, alias: Alias | None, block: Block) -> tuple[Diagnostic, ...]:
    """A warning that the written name is another's; the schema check reports the deprecated ones itself."""
    if alias is None or alias.deprecated or name == record.name:
        return ()
    at = block.at("method")
    source = block.composed.locate((*block.path, "method"), False)
    message = f"'{name}' is an alias of {record.name}"
    return (Diagnostic("method-alias", "warning", at, message, f"write 'method: {record.name}'", source),)


def model_names(registry: Any) -> list[str]:
    """Every spelling of the option that names the draft checkpoint."""
    names = [MODEL]
    for record in registry.records.values():
        if MODEL in record.options:
            names += [alias for alias in record.options[MODEL].aliases if alias not in names]
    return names


def at_block(finding: Diagnostic, block: Block) -> Diagnostic:
    """A finding about ``speculative.x`` under the block's own path."""
    head, dot, rest = finding.path.partition(".")
    if head != SPECULATIVE or finding.path.startswith(block.label):
        return finding
    return replace(finding, path=f"{block.label}{dot}{rest}")


def examine(record: SpeculatorRecord, block: Block, draft: DraftCheckpoint, shared: Shared) -> State:
    """Facts of the checkpoint under this record, and options merged over them."""
    facts: dict[str, Found] = {}
    findings: list[Diagnostic] = []
    rewritten = False
    if draft.checkpoint is not None and MODEL in record.options:
        inspection = inspect_draft(record, draft.checkpoint, shared.target.checkpoint, shared.registry)
        facts, findings = dict(inspection.facts), list(inspection.diagnostics)
        facts |= n_predict_origin(record, draft.checkpoint, facts)
        rewritten = any(matches(row.when, draft.checkpoint.config) for row in record.rewrites)
        if draft.same:
            overrides = shared.settings.target.get("hf_overrides")
            facts = {n: from_overrides(f, overrides) for n, f in facts.items()} if overrides else facts
            findings = [d for d in findings if d.code != "unknown-checkpoint-field"]
    scope = scope_of(record, shared.registry)
    values = base_values(facts, draft, shared, rewritten)
    options, wrong = merge_options(record, block, facts, scope, values)
    values |= {f"options.{name}": found.value for name, found in options.items()}
    if K in options:
        values["k"] = options[K].value
    return State(record, block, draft, facts, options, scope, values, tuple([*findings, *wrong]))


def scope_of(record: SpeculatorRecord, registry: Any) -> Scope:
    """The expression scope of a record, kept with the registry so that each expression compiles once."""
    scopes: dict[str, Scope] = registry.__dict__.setdefault("_record_scopes", {})
    if record.name not in scopes:
        scopes[record.name] = record_scope(record, registry.variables)
    return scopes[record.name]


def base_values(facts: Mapping[str, Found], draft: DraftCheckpoint, shared: Shared, rewritten: bool) -> dict[str, Any]:
    """Values of expressions that do not depend on options."""
    target = shared.target
    values: dict[str, Any] = {f"draft.{name}": found.value for name, found in facts.items()}
    values |= {f"target.{name}": found.value for name, found in {**target.facts, **target.settings}.items()}
    values |= {f"engine.{name}": found.value for name, found in shared.settings.engine.items()}
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
            if state.draft.checkpoint is not None and Identity.of(state.draft.checkpoint, registry).holds(child.declares, child):
                return child
            continue
        try:
            if scope_of(child, registry).holds(step.when, state.values) is True:
                return child
        except ExpressionError:
            continue
    return None


def refused_options(state: State, named: SpeculatorRecord | None, shared: Shared) -> list[Diagnostic]:
    """Options that the record finally chosen does not read: the schema could only check those of the written method."""
    if named is not None and named.name == state.record.name:
        return []
    block = at_path(shared.composed.data, state.block.path)
    if not isinstance(block, dict):
        return []
    holder: Any = {**block, "method": state.record.name}
    for step in reversed(state.block.path):
        holder = [{}] * step + [holder] if isinstance(step, int) else {step: holder}
    findings = shared.composed.checker.check(holder, shared.composed.locate, partial=True)
    prefix = state.block.label
    return [d for d in findings if d.path.startswith(prefix + ".") and d.severity == "error"]


def complete(state: State, origin: Origin, findings: tuple[Diagnostic, ...], shared: Shared) -> Outcome:
    """Inheritance, lengths, wiring, capabilities, numbers and rules; then the finalized value if nothing is wrong."""
    record, block = state.record, state.block
    found = list(findings)
    found += missing(record, block, state.options, state.draft.checkpoint is not None or state.draft.same)
    draft, values, more = draft_side(state, shared)
    found += more
    target_rules = tuple(r for t in matching_targets(shared.registry, shared.target.checkpoint) for r in t.rules)
    capabilities = dict(record.capabilities)
    for rule in record.capability_rules:
        if state.scope.holds(rule.when, values) is True:
            capabilities[rule.name] = rule.value
    values |= {f"capabilities.{name}": value for name, value in capabilities.items()}
    layers, more, settled = aux_layers(record, state.facts, shared.target.facts, state.options.get("aux_layers"), state.draft.checkpoint is not None)
    known_guess = any(d.code == GUESSED for d in found)
    found = [d for d in found if d.code not in settled]
    found += [at_block(d, block) for d in more if not (d.code == GUESSED and known_guess)]
    numbers = derive_numbers(record, state.scope, values)
    values |= {f"numbers.{name}": value for name, value in numbers.items()}
    found += run_rules((*record.rules, *target_rules), state.scope, values, block)
    found += check_compatibility(record, shared.registry.features, state.scope, values, block)
    errors = any(d.severity == "error" for d in found)
    parts = Parts(state.record, block, origin, state.options, draft, layers, capabilities, numbers, values, tuple(found))
    if errors or state.k is None:
        return Outcome(diagnostics=tuple(found), provenance={f"{block.label}.method": origin})
    config, more_found = finalize(parts, state.scope, shared.settings, shared.target)
    return Outcome(config, (*found, *more_found), config.provenance)


def derive_numbers(record: SpeculatorRecord, scope: Scope, values: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that the record owes the engine; one that cannot be computed is None."""
    numbers: dict[str, Any] = {}
    for name, expression in record.derive.items():
        try:
            value = scope.evaluate(expression, values)
        except ExpressionError:
            value = MISSING
        numbers[name] = None if value is MISSING else value
    return numbers


def draft_side(state: State, shared: Shared) -> tuple[Draft, dict[str, Any], list[Diagnostic]]:
    """The draft's settings and lengths after inheritance, and the values of expressions with them."""
    record, facts, checkpoint = state.record, dict(state.facts), state.draft.checkpoint
    target = shared.target
    values = dict(state.values)
    if MODEL not in record.options:
        return Draft(None, False, {}, {}), values, []
    side = Side(facts, state.draft.same, checkpoint is not None)
    settings = draft_settings(record, state.options, {**shared.settings.engine, **target.settings}, side)
    rope = facts.get("rope_type")
    cache_only = (rope.value if rope else "default") in CACHE_ONLY
    own = state.options.get("max_model_len")
    lengths, findings = draft_model_len(own, record, facts, target.settings.get("max_model_len"), cache_only)
    findings += check_settings(settings, {n: f.value for n, f in facts.items()}, side)
    findings += check_quantization(state.options.get("quantization"), settings.get("quantization"), target.settings, facts, side)
    attention = attention_of(facts, "draft")
    if attention is not None:
        facts["attention"] = attention
    facts |= {name: f for name, f in lengths.items() if name == "max_position_embeddings"}
    final = {name: f for name, f in settings.items() if f is not None}
    plain = {name: f.value for name, f in {**facts, **final}.items()}
    weights, kv = weight_bytes(checkpoint, plain), kv_bytes_per_token(checkpoint, plain)
    values |= {f"draft.{name}": value for name, value in plain.items() if value is not None}
    values |= {f"draft.{name}": f.value for name, f in lengths.items() if name != "max_position_embeddings"}
    values |= {"draft.rope_cache_only": cache_only, "draft.weight_bytes": weights, "draft.kv_bytes_per_token": kv}
    if lengths and "max_position_embeddings" in state.facts:
        values["draft.max_position_embeddings"] = state.facts["max_position_embeddings"].value
    comparison = values.get("draft.tokenizer")
    if comparison in ("identical", "extended", "different"):
        values["draft.tokenizer_equal"] = comparison != "different"
    draft = Draft(checkpoint, state.draft.same, facts, {**settings, **{n: f for n, f in lengths.items() if n not in facts}}, weights, kv)
    return draft, values, [at_block(d, state.block) for d in findings]
