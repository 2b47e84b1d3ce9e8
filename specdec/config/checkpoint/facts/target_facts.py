"""Facts of a target checkpoint, and what the target records that match it say."""

from __future__ import annotations

from collections.abc import Mapping

from specdec.config.checkpoint.facts.canonical import read_facts
from specdec.config.checkpoint.facts.evaluate import integer, target_scope
from specdec.config.checkpoint.facts.tensor_names import normalised_shapes
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.record import TargetRecord
from specdec.config.records.registry import Registry

# fact, tensor, axis: what a language model's embedding tells about its config
SHAPES = (("vocab_size", "embed_tokens.weight", 0), ("hidden_size", "embed_tokens.weight", 1))
TARGET_FACTS = "target"  # the fact set of speculators.yaml that a target is read with


def read_target_facts(target: Checkpoint | None, registry: Registry) -> tuple[dict[str, Found], list[Diagnostic]]:
    """The values of ``target.<name>``."""
    if target is None:
        return {}, []
    facts, findings = read_facts(registry.fact_sets.get(TARGET_FACTS, {}), target)
    heads, hidden = (facts[n].value if n in facts else None for n in ("num_attention_heads", "hidden_size"))
    if "head_dim" not in facts and heads and hidden and hidden % heads == 0:
        facts["head_dim"] = Found(hidden // heads, Origin("derived", "hidden_size / num_attention_heads"))
    for name, value in (("architectures", list(target.architectures)), ("model_type", target_model_type(target))):
        if value:
            facts[name] = Found(value, Origin("checkpoint", name))
    return facts, findings


def check_target(target: Checkpoint | None, facts: Mapping[str, Found]) -> list[Diagnostic]:
    """The target's config against its own tensors."""
    shapes = normalised_shapes(target) if target is not None else None
    findings = []
    for fact, tensor, axis in SHAPES if shapes else ():
        shape, found = (shapes or {}).get(tensor), facts.get(fact)
        if shape is not None and found is not None and axis < len(shape) and shape[axis] != found.value:
            message = f"the config says {fact} {found.value}, but {tensor} has shape {list(shape)}: {shape[axis]}"
            at = f"target.{found.origin.detail}"
            fix = "use the config.json that was saved with these weights"
            findings.append(Diagnostic("checkpoint-config-vs-weights", "error", at, message, fix=fix))
    return findings


def target_model_type(target: Checkpoint) -> str:
    """The model type, or that of the language model when only that is declared."""
    text = target.config.get("text_config")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    return target.model_type or (inner if isinstance(inner, str) else "")


def matching_targets(registry: Registry, target: Checkpoint | None) -> list[TargetRecord]:
    """The target records whose ``match`` names its model type (or its language model's) or an architecture, or is empty."""
    if target is None:
        return []
    text = target.config.get("text_config")
    types = {target.model_type, text.get("model_type") if isinstance(text, Mapping) else None} - {"", None}
    architectures = set(target.architectures)
    return [
        record
        for record in registry.targets.values()
        if not record.match
        or types & set(record.match.get("model_type", ()))
        or architectures & set(record.match.get("architecture", ()))
    ]


def record_facts(registry: Registry, target: Checkpoint | None) -> dict[str, Found]:
    """``facts`` of the matching target records: what the target settles about its drafts."""
    origin = Origin("target", "model_type", inputs=("target.model_type",))
    return {
        name: Found(value, origin)
        for record in matching_targets(registry, target)
        for name, value in record.facts.items()
    }


def default_aux_layers(registry: Registry, target: Checkpoint | None, facts: Mapping[str, Found]) -> list[int] | None:
    """The boundary ids that a matching target record gives as its default, or None."""
    values = {f"target.{name}": found.value for name, found in facts.items()}
    chosen = None
    for record in matching_targets(registry, target):
        if record.match and record.default_aux_layers is not None:
            ids = [integer(target_scope(registry), expression, values) for expression in record.default_aux_layers]
            chosen = [i for i in ids if i is not None] if None not in ids else chosen
    return chosen
