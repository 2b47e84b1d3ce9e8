"""Puts all resolved values together: the frozen ``SpeculativeConfig`` with origins, hash and the source it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.checkpoint import Checkpoint
from specdec.config.final.engine_effects import engine_effects
from specdec.config.final.hashing import digest
from specdec.config.final.memory_estimate import kv_bytes_per_token, plan_memory, recurrent_bytes, weight_bytes
from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.final.verification import LOSSY, verification
from specdec.config.final.wiring import shared_weights, step_to_layer, target_kv_layers, vocab_mode
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.expressions import MISSING, ExpressionError, Scope
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.options import MODEL, Block, K
from specdec.config.merge.settings import Settings
from specdec.config.merge.target_side import Target
from specdec.config.records.sections import section_fields, shared_fields

INTERNAL = (
    "keys",
    "tensor_names",
    "has_tensors",
    "file_format",
    "speculators_format",
    "lm_head",
    "embed_tokens",
    "draft_to_target",
)
BY_PERSON = ("user", "command line")
Values = dict[str, Found | None]


@dataclass(frozen=True)
class Draft:
    """The draft after inheritance; ``facts`` are what its config says, ``settings`` how it will be run."""

    checkpoint: Checkpoint | None
    same: bool
    facts: Mapping[str, Found]
    settings: Mapping[str, Found | None]
    weight_bytes: int | None = 0
    kv_bytes_per_token: int | None = 0


@dataclass(frozen=True)
class Parts:
    """What the steps before found out about one speculator."""

    record: SpeculatorRecord
    block: Block
    origin: Origin  # of the method
    options: Mapping[str, Found]
    typed: Any  # the same as an instance of the record's model; None where a value is wrong
    draft: Draft
    layers: Found | None
    capabilities: Mapping[str, bool]
    numbers: Mapping[str, Any]
    values: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...] = field(default=())


def finalize(
    parts: Parts, scope: Scope, settings: Settings, target: Target
) -> tuple[SpeculativeConfig, list[Diagnostic]]:
    """The finalized configuration and the findings about engine and memory."""
    record, options = parts.record, parts.options
    k = int(options[K].value)
    effects = engine_effects(k, parts.numbers, settings.engine)
    groups: dict[str, Values] = {
        "draft": draft_values(parts, settings),
        "target": target_values(target),
        "engine": engine_values(settings, target, effects.engine),
        "sampling": {n: settings.sampling.get(n) for n in section_fields()["sampling"]},
        "wiring": wiring_values(parts, target, k),
        "verification": dict(verification(record, options, k, any(d.code == LOSSY for d in parts.diagnostics))),
    }
    numbers = {**parts.numbers, **positions(groups)}
    resources, memory = resource_values(parts, scope, settings, target)
    findings = [*effects.diagnostics, *memory]
    plain = {name: {n: f.value if f else None for n, f in group.items()} for name, group in groups.items()}
    option_values = parts.typed.to_dict()
    source = canonical_source(parts, settings, k)
    provenance = origins(parts, groups)
    hashed = {
        "method": record.name,
        K: k,
        "options": {n: v for n, v in option_values.items() if n != MODEL},
        **plain,
        "numbers": numbers,
    }
    every = (*parts.diagnostics, *findings)
    config = SpeculativeConfig(
        method=record.name,
        record=record,
        num_speculative_tokens=k,
        options=parts.typed,
        draft=Namespace(plain["draft"]),
        target=Namespace(plain["target"]),
        engine=Namespace(plain["engine"]),
        sampling=Namespace(plain["sampling"]),
        wiring=Namespace(plain["wiring"]),
        verification=Namespace(plain["verification"]),
        numbers=Namespace(
            {**numbers, "pcp_unsupported_reason": pcp_reason(parts, scope), **changed_capabilities(parts)}
        ),
        resources=Namespace(resources),
        changes=effects.changes,
        warnings=tuple(d for d in every if d.severity == "warning"),
        provenance=provenance,
        hash_factors=hash_factors(parts, scope, plain["draft"]),
        config_hash=digest(hashed),
        source=source,
    )
    return config, findings


def draft_values(parts: Parts, settings: Settings) -> Values:
    """Facts and settings of the draft, its place and its architecture."""
    draft = parts.draft
    if MODEL not in parts.record.options:
        return {MODEL: None}
    values: Values = {n: f for n, f in draft.facts.items() if n not in INTERNAL}
    values |= draft.settings
    values[MODEL] = parts.options.get(MODEL) or (settings.target.get(MODEL) if draft.same else None)
    values["same_checkpoint"] = Found(
        draft.same, Origin("derived", "no draft of its own is named" if draft.same else "own checkpoint")
    )
    values["architecture"] = architecture(parts.record, draft.facts.get("architectures"))
    return values


def architecture(record: SpeculatorRecord, declared: Found | None) -> Found | None:
    """The draft's class as the record runs it: a plain one that was named by method carries the draft's prefix."""
    names = list(declared.value) if declared is not None else []
    if not names or declared is None:
        return None
    prefix = (record.draft_model or "").rpartition(":")[2].removesuffix("Draft")
    if prefix.lower() in names[0].lower():
        return Found(names[0], declared.origin)
    return Found(
        f"{prefix}{names[0]}",
        Origin("derived", "speculative.method", inputs=("draft.architectures", "speculative.method")),
    )


def target_values(target: Target) -> Values:
    """Facts and final settings of the target."""
    values: Values = {**target.facts, **target.settings}
    for name in section_fields()["target"]:
        values.setdefault(name, None)
    return values


def engine_values(settings: Settings, target: Target, changed: Mapping[str, Found]) -> Values:
    """Engine settings, shared ones with their final values, and what speculation changed."""
    values: Values = {name: settings.engine.get(name) for name in section_fields()["engine"]}
    values |= {name: target.settings.get(name, values[name]) for name in shared_fields()}
    values["max_num_active_seqs"] = changed.get("max_num_active_seqs") or values["max_num_seqs"]
    return values


def wiring_values(parts: Parts, target: Target, k: int) -> Values:
    """Hidden states, shared weights, maps between ids, and which module drafts which step."""
    record, facts = parts.record, parts.draft.facts
    values: Values = {"capture_before_layer": parts.layers}
    values |= shared_weights(record, facts)
    values.setdefault("lm_head", None)
    values.setdefault("embed_tokens", None)
    values["draft_to_target"] = facts.get("draft_to_target")
    own_vocab = record.capabilities.get("draft_has_own_vocab", False)
    values["vocab_mode"] = (
        vocab_mode(parts.options, facts, target.facts, own_vocab) if MODEL in record.options else None
    )
    if record.capabilities.get("reads_target_kv"):
        values["target_kv_layers"] = target_kv_layers(facts, target.facts)
    modules = facts.get("num_mtp_modules")
    values["step_to_layer"] = step_to_layer(k, modules.value if modules else None)
    return values


def positions(groups: Mapping[str, Values]) -> dict[str, Any]:
    """How far is drafted, also under the names that engines use."""
    draft, served = groups["draft"], groups["target"].get("max_model_len")
    until, capacity = draft.get("speculate_until") or served, draft.get("max_position_embeddings")
    return {"speculate_until": until.value if until else None, "draft_positions": capacity.value if capacity else None}


def resource_values(
    parts: Parts, scope: Scope, settings: Settings, target: Target
) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Bytes and tokens of ``config.resources``."""
    plain = {n: f.value for n, f in {**target.facts, **target.settings}.items()}
    target_kv = kv_bytes_per_token(target.checkpoint, plain)
    target_weights = weight_bytes(target.checkpoint, plain)
    values = {**parts.values, "target.weight_bytes": target_weights, "target.kv_bytes_per_token": target_kv}
    own: dict[str, Any] = {}
    for name, expression in parts.record.resources.items():
        try:
            value = scope.evaluate(str(expression), values)
        except ExpressionError:
            value = MISSING
        own[name] = None if value is MISSING else value
    drafts = MODEL in parts.record.options and not parts.draft.same
    numbers, findings = plan_memory(
        target_weights=target_weights,
        draft_weights=own.get("draft_weight_bytes", parts.draft.weight_bytes) if drafts else 0,
        target_kv=target_kv,
        draft_kv=own.get("draft_kv_bytes_per_token", parts.draft.kv_bytes_per_token)
        if MODEL in parts.record.options
        else 0,
        draft_logits=own.get("draft_logits_bytes") or 0,
        states=recurrent_bytes(
            target.checkpoint, plain, parts.values["engine.max_num_seqs"], int(parts.options[K].value)
        ),
        engine={n: f.value for n, f in settings.engine.items() if f"engine.{n}" not in parts.block.composed.tainted},
    )
    one_pass, passes = own.get("draft_pass_bytes"), own.get("draft_passes")
    numbers["draft_round_bytes"] = None if one_pass is None or passes is None else one_pass * passes
    return {**{n: v for n, v in own.items() if n not in numbers}, **numbers}, findings


def pcp_reason(parts: Parts, scope: Scope) -> str | None:
    """Why prefill context parallelism is not possible, or None when it is."""
    if parts.capabilities.get("supports_pcp"):
        return None
    entry = parts.record.compatibility.get("prefill_context_parallel") or {}
    rule = next((r for r in parts.record.capability_rules if r.name == "supports_pcp" and r.reason), None)
    return parts.record.reasons.get("supports_pcp") or entry.get("reason") or (rule.reason if rule else "not supported")


def changed_capabilities(parts: Parts) -> dict[str, bool]:
    """Capability flags that this checkpoint or these options changed."""
    return {n: v for n, v in parts.capabilities.items() if parts.record.capabilities.get(n) != v}


def hash_factors(parts: Parts, scope: Scope, draft: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values that decide whether two engines may share compiled code and caches."""
    values = {**parts.values, "draft.config_hash": digest({"draft": draft})}
    factors = []
    for expression in parts.record.hash_factors:
        try:
            value = scope.evaluate(expression, values)
        except ExpressionError:
            value = MISSING
        factors.append(None if value is MISSING else tuple(value) if isinstance(value, list) else value)
    return tuple(factors)


def canonical_source(parts: Parts, settings: Settings, k: int) -> dict[str, Any]:
    """The configuration that resolves to this value: canonical names, and every option that is not a plain default."""
    speculative: dict[str, Any] = {"method": parts.record.name, K: k}
    for name, found in parts.options.items():
        if name != K and found.origin.kind != "record":
            speculative[name] = found.value
    source: dict[str, Any] = {"schema_version": 1, "speculative": speculative}
    shared = shared_fields()
    for section in ("target", "engine", "sampling"):
        fields: Mapping[str, Found] = getattr(settings, section)
        written = {
            n: f.value
            for n, f in fields.items()
            if f.origin.kind in BY_PERSON and not (section == "engine" and n in shared)
        }
        if written:
            source[section] = written
    return {
        name: source[name]
        for name in ("schema_version", "target", "speculative", "engine", "sampling")
        if name in source
    }


def origins(parts: Parts, groups: Mapping[str, Values]) -> dict[str, Origin]:
    """Dotted path -> origin of every final value."""
    label = parts.block.label
    found = {f"{label}.method": parts.origin}
    found |= {f"{label}.{name}": value.origin for name, value in parts.options.items()}
    for group, values in groups.items():
        found |= {f"{group}.{name}": value.origin for name, value in values.items() if value is not None}
    for name, expression in parts.record.derive.items():
        if parts.numbers.get(name) is not None:
            found[f"numbers.{name}"] = number_origin(str(expression), label)
    return found


def number_origin(expression: str, label: str) -> Origin:
    """The inputs that a number's expression reads; a constant is the record's own."""
    names = dict.fromkeys(re.findall(r"\b(?:k\b|(?:draft|target|engine|options|numbers)\.\w+)", expression))
    inputs = [
        f"{label}.{K}" if n == "k" else re.sub("^options", label, n) for n in names if f"known.{n}" not in expression
    ]
    return Origin("derived", expression, inputs=tuple(inputs)) if inputs else Origin("record", f"always {expression}")
