"""Everything the configuration wants to know about a draft checkpoint under one record, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.checkpoint import layers, rope, tensor_checks, training, unknown_keys, vocab
from specdec.config.checkpoint.context import CheckContext, finding
from specdec.config.checkpoint.errors import CheckpointFault
from specdec.config.checkpoint.facts import read_facts
from specdec.config.checkpoint.identity import identity_facts
from specdec.config.checkpoint.rewrites import rewrite
from specdec.config.checkpoint.target import default_aux_layers, read_target_facts, record_facts
from specdec.config.checkpoint.tensors import normalised_shapes
from specdec.config.checkpoint.tokenizer import TokenizerComparison, compare_tokenizers
from specdec.config.checkpoint.value import Checkpoint
from specdec.config.diagnostics import Diagnostic, Found, Origin
from specdec.config.record_types import SpeculatorRecord
from specdec.config.registry import Registry

Check = Callable[[CheckContext], Iterator[Diagnostic]]
CHECKS: tuple[Check, ...] = (
    layers.check_ids,
    layers.check_hidden_size,
    vocab.check_sizes,
    vocab.check_reduced,
    vocab.check_map,
    tensor_checks.check_shapes,
    tensor_checks.check_flags,
    tensor_checks.check_layers,
    tensor_checks.check_heads,
    tensor_checks.check_required,
    tensor_checks.check_own_embeddings,
    training.check_training,
    rope.check_rope,
)


@dataclass(frozen=True)
class Inspection:
    """``facts`` are the values of ``draft.<name>``; ``config`` is the config after the record's rewrites."""

    facts: Mapping[str, Found]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    tokenizers: TokenizerComparison = field(default_factory=lambda: TokenizerComparison("unknown"))


def inspect_draft(
    record: SpeculatorRecord, checkpoint: Checkpoint, target: Checkpoint | None, registry: Registry
) -> Inspection:
    """Rewrites the config, reads the record's facts, completes them from tensors and target, and runs every check."""
    try:
        config, trace = rewrite(checkpoint.config, record.rewrites)
    except CheckpointFault as fault:
        config, trace = dict(checkpoint.config), []
        return Inspection(
            _identity(checkpoint), [finding(fault.code, "draft.model_type", str(fault), fault.fix)], config
        )
    target_facts, _ = read_target_facts(target, registry)
    rewritten = checkpoint.with_config(config)
    depth = target_facts.get("num_hidden_layers")
    read, findings = read_facts(record.facts, rewritten, target_layers=depth.value if depth else None)
    facts = {**_identity(checkpoint), **read}
    for name, found in record_facts(registry, target).items():
        if name in record.tensors.get("follow_target", ()) and (name not in read or read[name].origin.kind == "record"):
            facts[name] = found
    context = CheckContext(record, checkpoint, facts, normalised_shapes(checkpoint), target_facts)
    _complete(context, facts)
    guessed, warnings = layers.with_default_ids(context, default_aux_layers(registry, target, target_facts))
    findings += warnings
    if guessed is not None:
        facts[record.tensors["aux_layers"]["fact"]] = guessed
    tokenizers = _tokenizers(target, checkpoint, facts, findings)
    try:
        for check in (*CHECKS, unknown_keys.check_unknown):
            findings += check(context)
        if (mapping := vocab.draft_to_target(context)) is not None:
            facts["draft_to_target"] = Found(mapping, Origin("checkpoint", "d2t", inputs=("offsets",)))
    except CheckpointFault as fault:
        findings.append(finding(fault.code, "speculative.model", str(fault), fault.fix))
    return Inspection(facts, findings, config, trace, tokenizers)


def _identity(checkpoint: Checkpoint) -> dict[str, Found]:
    return {name: Found(value, Origin("checkpoint", name)) for name, value in identity_facts(checkpoint).items()}


def _complete(context: CheckContext, facts: dict[str, Found]) -> None:
    """Facts that tensors tell when the config does not, and where shared weights come from."""
    heads, hidden = context.fact("num_attention_heads"), context.fact("hidden_size")
    if "head_dim" in context.record.facts and "head_dim" not in facts and heads:
        rows = (context.shapes or {}).get("layers.0.self_attn.q_proj.weight", (0,))[0]
        if rows and rows % heads == 0:
            facts["head_dim"] = Found(
                rows // heads, Origin("derived", "rows of q_proj", inputs=("draft.num_attention_heads",))
            )
        elif hidden and hidden % heads == 0:
            inputs = ("draft.hidden_size", "draft.num_attention_heads")
            facts["head_dim"] = Found(
                hidden // heads, Origin("derived", "hidden_size / num_attention_heads", inputs=inputs)
            )
    if heads and "num_key_value_heads" in context.record.facts and "num_key_value_heads" not in facts:
        facts["num_key_value_heads"] = Found(
            heads, Origin("derived", "one per attention head", inputs=("draft.num_attention_heads",))
        )
    facts.update(tensor_checks.shared_weights(context))


def _tokenizers(
    target: Checkpoint | None, checkpoint: Checkpoint, facts: dict[str, Found], findings: list[Diagnostic]
) -> TokenizerComparison:
    """Reads both tokenizers only where the record has a fact for their agreement."""
    try:
        if target is None or "tokenizer" not in facts:
            return TokenizerComparison("unknown")
        comparison = compare_tokenizers(target.tokenizer, checkpoint.tokenizer)
    except CheckpointFault as fault:
        findings.append(finding("tokenizer-unreadable", "speculative.model", str(fault), severity="warning"))
        return TokenizerComparison("unknown")
    origin = Origin("derived", "token strings compared id by id", inputs=("draft tokenizer", "target tokenizer"))
    facts["tokenizer"] = Found(comparison.agreement, origin)
    if comparison.first_difference is not None:
        facts["tokenizer_first_difference"] = Found(comparison.first_difference, origin)
    return comparison
