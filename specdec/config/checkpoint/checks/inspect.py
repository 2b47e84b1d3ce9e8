"""Everything the configuration wants to know about a draft checkpoint under one record, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.config.checkpoint.checks import (
    agreement,
    layers,
    module_checks,
    rope,
    tensor_checks,
    training,
    unknown_keys,
    vocab,
)
from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.checks.tensor_rules import check_tensors
from specdec.config.checkpoint.facts.canonical import in_speculators_format, read_facts
from specdec.config.checkpoint.facts.rewrites import matches, rewrite
from specdec.config.checkpoint.facts.target_facts import default_aux_layers, read_target_facts, record_facts
from specdec.config.checkpoint.facts.tensor_names import normalised_shapes
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.tokenizer import compare_tokenizers
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.record import SpeculatorRecord
from specdec.config.records.registry import Registry

Check = Callable[[CheckContext], Iterator[Diagnostic]]
CHECKS: tuple[Check, ...] = (
    layers.check_ids,
    layers.check_hidden_size,
    vocab.check_sizes,
    vocab.check_reduced,
    vocab.check_map,
    tensor_checks.check_layers,
    tensor_checks.check_heads,
    training.check_training,
    rope.check_rope,
    rope.check_rope_type,
    agreement.check_agreement,
    module_checks.check_counts,
    unknown_keys.check_unknown,
)


@dataclass(frozen=True)
class Inspection:
    """``facts`` are the values of ``draft.<name>``; ``config`` is the config after the record's rewrites."""

    facts: Mapping[str, Found]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


def inspect_draft(
    record: SpeculatorRecord,
    checkpoint: Checkpoint,
    target: Checkpoint | None,
    registry: Registry,
    *,
    same_checkpoint: bool = False,
    chosen_layers: Sequence[int] | None = None,
) -> Inspection:
    """Rewrites the config, reads the record's facts, completes them from tensors and target, and runs every check.

    ``same_checkpoint``: the draft's weights are part of the target's checkpoint, which is then not checked against itself.
    ``chosen_layers``: boundary ids that the user chose; they answer the draft's silence.
    """
    try:
        config, trace = rewrite(checkpoint.config, record.rewrites)
    except CheckpointFault as fault:
        return Inspection({}, [finding(fault.code, "draft.model_type", str(fault), fault.fix)], checkpoint.config)
    target_facts, _ = read_target_facts(target, registry)
    depth = target_facts.get("num_hidden_layers")
    facts, findings = read_facts(
        record.facts, checkpoint.with_config(config), target_layers=depth.value if depth else None
    )
    for name, found in record_facts(registry, target).items():
        if name in record.tensors.get("follow_target", ()) and (
            name not in facts or facts[name].origin.kind == "record"
        ):
            facts[name] = found
    applies = any(matches(row.when, checkpoint.config) for row in record.rewrites)
    facts["rewrite_matches"] = Found(applies, Origin("derived", "rewrite rows of the record"))
    facts["speculators_format"] = Found(in_speculators_format(checkpoint), Origin("derived", "speculators_config"))
    same = same_checkpoint or (target is not None and checkpoint.config is target.config)
    context = CheckContext(record, checkpoint, facts, normalised_shapes(checkpoint), target_facts, chosen_layers)
    _complete(context, facts)
    findings += _default_layers(context, facts, default_aux_layers(registry, target, target_facts))
    try:
        _compare_tokenizers(context, target, facts)
        findings += check_tensors(context, registry.scope(record.name), same)
        for check in () if same else CHECKS:
            findings += check(context)
        if not same:
            facts |= module_checks.corrected_facts(context)
        if (mapping := vocab.draft_to_target(context)) is not None:
            facts["draft_to_target"] = Found(mapping, Origin("checkpoint", "d2t", inputs=("offsets",)))
    except CheckpointFault as fault:
        findings.append(finding(fault.code, "speculative.model", str(fault), fault.fix))
    return Inspection(facts, list(dict.fromkeys(findings)), config, trace)


def _default_layers(
    context: CheckContext, facts: dict[str, Found], of_target: Sequence[int] | None
) -> list[Diagnostic]:
    """Adds the guessed ids to the facts; nothing is guessed where the user chose."""
    if context.chosen_layers is not None:
        return []
    guessed, warnings = layers.with_default_ids(context, of_target)
    if guessed is not None:
        facts[context.rules["aux_layers"]["fact"]] = guessed
    return warnings


def _complete(context: CheckContext, facts: dict[str, Found]) -> None:
    """Facts that tensors tell when the config does not, and where shared weights come from."""
    heads, hidden = context.fact("num_attention_heads"), context.fact("hidden_size")
    by_heads = ("draft.num_attention_heads",)
    if "head_dim" in context.record.facts and "head_dim" not in facts and heads:
        rows = (context.shapes or {}).get("layers.0.self_attn.q_proj.weight", (0,))[0]
        if rows and rows % heads == 0:
            facts["head_dim"] = Found(rows // heads, Origin("derived", "rows of q_proj / heads", inputs=by_heads))
        elif hidden and hidden % heads == 0:
            inputs = ("draft.hidden_size", *by_heads)
            facts["head_dim"] = Found(hidden // heads, Origin("derived", "hidden_size / heads", inputs=inputs))
    if heads and "num_key_value_heads" in context.record.facts and "num_key_value_heads" not in facts:
        facts["num_key_value_heads"] = Found(heads, Origin("derived", "one per attention head", inputs=by_heads))
    facts.update(tensor_checks.shared_weights(context))
    facts.update(module_checks.counted_facts(context))


def _compare_tokenizers(context: CheckContext, target: Checkpoint | None, facts: dict[str, Found]) -> None:
    """Reads both tokenizers, only where the draft has a vocabulary of its own."""
    if target is None or not context.record.capabilities.get("draft_has_own_vocab"):
        return
    comparison = compare_tokenizers(target.tokenizer, context.checkpoint.tokenizer)
    origin = Origin("derived", "token strings compared id by id", inputs=("draft tokenizer", "target tokenizer"))
    facts["tokenizer"] = Found(comparison.agreement, origin)
    if comparison.agreement != "unknown":
        facts["tokenizer_equal"] = Found(comparison.agreement == "identical", origin)
    if comparison.first_difference is not None:
        facts["tokenizer_first_difference"] = Found(comparison.first_difference, origin)
    for name, token in (("draft_token", comparison.draft_token), ("target_token", comparison.target_token)):
        if token is not None:
            facts[f"tokenizer_{name}"] = Found(token, origin)
