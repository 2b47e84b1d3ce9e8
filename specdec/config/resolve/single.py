"""One speculator, from its block of the file to a finalized configuration or to errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.config.checkpoint import Identity, matching_targets
from specdec.config.checkpoint.facts.canonical import positions_of
from specdec.config.final.memory_estimate import kv_bytes_per_token, weight_bytes
from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.config.final.wiring import GUESSED, aux_layers
from specdec.config.findings.diagnostics import Diagnostic, Origin
from specdec.config.findings.paths import Step
from specdec.config.language.expressions import MISSING, ExpressionError, Scope
from specdec.config.language.record import Alias, SpeculatorRecord
from specdec.config.merge.inherit import Side, check_quantization, check_settings, draft_model_len, draft_settings
from specdec.config.merge.method import MODEL, DraftCheckpoint, choose, find_draft
from specdec.config.merge.options import Block, missing
from specdec.config.merge.ranks import Candidate, strongest, with_beaten
from specdec.config.merge.settings import read_settings, written
from specdec.config.merge.target_side import attention_of
from specdec.config.merge.validated import validated
from specdec.config.read.inputs import at_path
from specdec.config.resolve.examine import Shared, State, examine, specialized
from specdec.config.resolve.finalize import Draft, Parts, finalize
from specdec.config.resolve.rules import check_compatibility, run_rules
from specdec.config.schema.known import SPECULATIVE

CACHE_ONLY = frozenset({"default", "linear", "llama3", "ntk", "proportional"})  # the position count only sizes a table
CHECKPOINTS = ("draft.", "target.")  # where findings about the content of a checkpoint stand
OVERRIDES = "hf_overrides"
MAX_HOPS = 8  # records that take over from each other


@dataclass(frozen=True)
class Outcome:
    """``config`` is None when there are errors."""

    config: SpeculativeConfig | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    provenance: Mapping[str, Origin] = field(default_factory=dict)


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
    models = block.candidates(model_names([record] if record else registry.records.values()))
    model = models[0][1] if models else None
    if twice := given_twice(models, shared):
        return Outcome(diagnostics=(*notices, *twice))
    draft = find_draft(
        record,
        model,
        shared.given or shared.target.speculators,
        shared.target.checkpoint,
        shared.settings.value("target", MODEL),
    )
    if shared.given is None and model is not None and draft.checkpoint is shared.target.speculators:
        draft = find_draft(record, model, None, shared.target.checkpoint, shared.settings.value("target", MODEL))
    if any(d.severity == "error" for d in draft.diagnostics):  # what would follow from it says nothing new
        return Outcome(diagnostics=(*notices, *draft.diagnostics))
    draft = draft.overridden(strongest(block.candidates([OVERRIDES])))
    chosen = choose(record, origin, draft, shared.target.checkpoint, model, registry)
    shared = with_defaults(shared, chosen.record)
    findings = (*notices, *draft.diagnostics, *(at_block(d, block) for d in chosen.diagnostics))
    if chosen.record is None:
        return Outcome(diagnostics=findings, provenance={f"{block.label}.method": origin} if named else {})
    record, origin = chosen.record, chosen.origin
    if models and draft.same and not inside_target(record, draft, registry):
        source, fix = composed.locate((*path, MODEL), False), "name the draft's checkpoint"
        if not record.capabilities.get("has_own_language_model"):
            message = f"{models[0][1]} is the target itself, which is no draft for {record.name}"
            found = Diagnostic("draft-is-target", "error", block.at(MODEL), message, fix, source)
            return Outcome(diagnostics=(*notices, found))
        message = f"{models[0][1]} is the target itself: every draft is accepted, and none is cheaper than the target"
        findings = (*findings, Diagnostic("draft-is-target", "warning", block.at(MODEL), message, fix, source))
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


def inside_target(record: SpeculatorRecord, draft: DraftCheckpoint, registry: Any) -> bool:
    """Whether the target's own checkpoint may hold the draft: by the record, or because it declares that it does."""
    if record.capabilities.get("draft_defaults_to_target"):
        return True
    holds = draft.checkpoint is not None and Identity.of(draft.checkpoint, registry).holds(record.declares, record)
    return holds and not record.fallback


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


def given_twice(models: list[Candidate], shared: Shared) -> tuple[Diagnostic, ...]:
    """An error when a draft is named although the target's checkpoint is one that names its own target."""
    place = shared.settings.value("target", MODEL)
    if not models or shared.target.speculators is None or models[0][1] == place:
        return ()
    origin, model = models[0]
    message = f"the draft is given twice: target.model is a speculator's checkpoint that names its own target, and {origin.detail} is {model!r}"
    return (
        Diagnostic(
            "conflicting-values",
            "error",
            origin.detail,
            message,
            f"remove {origin.detail}, or name the target itself",
            origin.source,
        ),
    )


def model_names(records: Iterable[SpeculatorRecord]) -> list[str]:
    """Every spelling of the option that names the draft checkpoint."""
    names = [MODEL]
    for record in records:
        if MODEL in record.options:
            names += [alias for alias in record.options[MODEL].aliases if alias not in names]
    return names


def at_block(finding: Diagnostic, block: Block) -> Diagnostic:
    """A finding about ``speculative.x`` under the block's own path."""
    head, dot, rest = finding.path.partition(".")
    if head != SPECULATIVE or finding.path.startswith(block.label):
        return finding
    return replace(finding, path=f"{block.label}{dot}{rest}")


def refused_options(state: State, named: SpeculatorRecord | None, shared: Shared) -> list[Diagnostic]:
    """Options that the record finally chosen does not read: the schema could only check those of the written method."""
    if named is not None and named.name == state.record.name:
        return [d for d in shared.composed.deferred if d.path.startswith(state.block.label + ".")]
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
    if not state.readable:
        return Outcome(diagnostics=tuple(found), provenance={f"{block.label}.method": origin})
    place = len(found)
    typed, wrong = validated(record, block, state.options, "target" if state.draft.same else "draft")
    if wrong:
        found += wrong.values()
        state = state.without(wrong)
        block = state.block
    draft, values, more = draft_side(state, shared)
    found += more
    target_rules = tuple(r for t in matching_targets(shared.registry, shared.target.checkpoint) for r in t.rules)
    capabilities = dict(record.capabilities)
    for rule in record.capability_rules:
        if state.scope.holds(rule.when, values) is True:
            capabilities[rule.name] = rule.value
    values |= {f"capabilities.{name}": value for name, value in capabilities.items()}
    says_all = state.draft.checkpoint is not None or not capabilities.get("needs_draft_checkpoint")
    layers, more, settled = aux_layers(
        record, state.facts, shared.target.facts, state.options.get("aux_layers"), says_all
    )
    known_guess = any(d.code == GUESSED for d in found)
    found = [d for d in found if d.code not in settled]
    found += [at_block(d, block) for d in more if not (d.code == GUESSED and known_guess)]
    numbers = derive_numbers(record, state.scope, values)
    values |= {f"numbers.{name}": value for name, value in numbers.items()}
    found += run_rules((*record.rules, *target_rules), state.scope, values, block)
    found += check_compatibility(record, shared.registry.features, state.scope, values, block)
    sound = not any(d.severity == "error" and d.path.startswith(CHECKPOINTS) for d in found)
    found[place:place] = missing(
        record, block, state.options, state.draft.checkpoint is not None or state.draft.same, sound
    )
    errors = any(d.severity == "error" for d in found)
    parts = Parts(
        state.record, block, origin, state.options, typed, draft, layers, capabilities, numbers, values, tuple(found)
    )
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
    findings += check_quantization(
        state.options.get("quantization"), settings.get("quantization"), target.settings, facts, side
    )
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
        reach = positions_of(state.facts, "draft")
        values["draft.max_position_embeddings"] = reach.value if reach else None
    comparison = values.get("draft.tokenizer")
    if comparison in ("identical", "extended", "different"):
        values["draft.tokenizer_equal"] = comparison != "different"
    draft = Draft(
        checkpoint,
        state.draft.same,
        facts,
        {**settings, **{n: f for n, f in lengths.items() if n not in facts}},
        weights,
        kv,
    )
    return draft, values, [at_block(d, state.block) for d in findings]
