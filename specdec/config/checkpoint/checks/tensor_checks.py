"""Contradictions between a draft's config and its tensors, by the rules that its record states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.facts.tensor_names import layer_count
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin

MISMATCH = "checkpoint-config-vs-weights"


def check_shapes(context: CheckContext) -> Iterator[Diagnostic]:
    """``shapes``: an axis of a tensor must equal the product of facts (or numbers)."""
    for rule in (context.rules.get("shapes") or ()) if context.shapes else ():
        shape = (context.shapes or {}).get(rule["tensor"])
        factors = [part if isinstance(part, int) else context.fact(part) for part in rule["equals"]]
        if shape is None or None in factors or rule.get("axis", 0) >= len(shape):
            continue
        actual, expected = shape[rule.get("axis", 0)], prod(factors)
        if actual == expected:
            continue
        at = context.at(rule.get("at", next(part for part in rule["equals"] if isinstance(part, str))))
        arithmetic = " x ".join(f"{_word(part)} {value}" for part, value in zip(rule["equals"], factors, strict=True))
        message = f"{arithmetic} gives {expected}, but {rule['tensor']} has shape {list(shape)} ({actual} where {expected} is needed)"
        if len(factors) == 1:
            message = f"the config says {arithmetic}, but {rule['tensor']} has shape {list(shape)}: {actual}"
        fix = rule.get("fix", "use the config.json that was saved with these weights")
        yield finding(rule.get("code", MISMATCH), at, message, fix)


def check_flags(context: CheckContext) -> Iterator[Diagnostic]:
    """``flags``: a fact is true exactly when its tensor is stored."""
    flags: Mapping[str, str | None] = context.rules.get("flags") or {}
    for fact, tensor in flags.items() if context.shapes is not None else ():
        if tensor is None:
            continue
        stored, flag = tensor in (context.shapes or {}), bool(context.fact(fact))
        key = context.at(fact).removeprefix("draft.")
        if stored and not flag:
            how = f"{key} is false" if context.stated(fact) else f"the config has no {key}"
            message = f"the weights hold {tensor}, but {how}, so it would not be used"
            yield finding(MISMATCH, context.at(fact), message, f"set {key}: true in the config.json")
        elif flag and not stored and context.stated(fact):
            message = f"{key} is true, but the weights hold no {tensor}"
            yield finding(
                MISMATCH, context.at(fact), message, f"set {key}: false in the config.json, or use the right weights"
            )


def check_layers(context: CheckContext) -> Iterator[Diagnostic]:
    """``layer_count``: the fact that counts decoder layers; ``usual_layers``: more than this is odd for a head."""
    fact = context.rules.get("layer_count")
    claimed = context.fact(fact) if fact else None
    if claimed is None:
        return
    stored = layer_count(context.shapes or {})
    usual = context.rules.get("usual_layers")
    if usual and stored and claimed > usual >= stored:
        message = f"the config says {claimed} decoder layers, which may be the target's number; the weights hold {stored}, and they count"
        fix = f"set {fact}: {stored} in the config.json"
        yield finding("head-layer-count-unusual", context.at(str(fact)), message, fix, "warning")
    elif stored and stored != claimed:
        message = f"the config says {claimed} decoder layers, but the weights hold {stored}"
        yield finding(MISMATCH, context.at(str(fact)), message, f"set {fact}: {stored} in the config.json")
    if not stored and usual and claimed > usual:
        message = f"the config says {claimed} decoder layers; heads of this kind have at most {usual}, so this may be the target's number"
        yield finding("head-layer-count-unusual", context.at(str(fact)), message, "compare with the weights", "warning")


def check_required(context: CheckContext) -> Iterator[Diagnostic]:
    """``required``: tensors the draft cannot do without."""
    for tensor in (context.rules.get("required") or ()) if context.listing_is_whole else ():
        if tensor not in (context.shapes or {}):
            message = f"the checkpoint has no tensor {tensor}, which {context.record.name} needs"
            yield finding("missing-tensor", "speculative.model", message, "check that the checkpoint is complete")


def check_forbidden(context: CheckContext) -> Iterator[Diagnostic]:
    """``forbidden``: tensors that show another kind of checkpoint; to ignore them would be to run half of a draft."""
    prefixes: Mapping[str, str | None] = context.rules.get("forbidden") or {}
    for prefix, meaning in prefixes.items():
        tensor = next((name for name in context.shapes or () if prefix in name), None) if meaning else None
        if tensor is not None:
            message = f"the weights hold {tensor}, which {context.record.name} does not read: {meaning}"
            yield finding(
                "method-checkpoint-mismatch", "speculative.method", message, "name the method of this checkpoint"
            )


def check_heads(context: CheckContext) -> Iterator[Diagnostic]:
    """Attention head counts against each other, whatever the tensors say."""
    heads, kv_heads = context.fact("num_attention_heads"), context.fact("num_key_value_heads")
    if heads and kv_heads and heads % kv_heads:
        message = f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        yield finding("head-count-invalid", context.at("num_key_value_heads"), message, "correct the config.json")


def check_own_embeddings(context: CheckContext) -> Iterator[Diagnostic]:
    """Embeddings of another width than the target's cannot be shared with it."""
    tensor = (
        (context.rules.get("shared") or {}).get("embed_tokens") if context.rules.get("feature_projection") else None
    )
    ours, theirs = context.fact("hidden_size"), context.target("hidden_size")
    if tensor is None or context.shapes is None or tensor in context.shapes or None in (ours, theirs) or ours == theirs:
        return
    message = (
        f"the draft has width {ours} and the target {theirs}, so it needs embeddings of its own, but stores no {tensor}"
    )
    yield finding(
        "missing-tensor", "speculative.model", message, "use the checkpoint as it was trained, with this tensor"
    )


def shared_weights(context: CheckContext) -> dict[str, Found]:
    """``shared``: weight -> "draft" when the checkpoint stores its tensor, else "target"; empty when tensors are not known."""
    weights: Mapping[str, str | None] = context.rules.get("shared") or {}
    if context.shapes is None:
        return {}
    shared = {weight: tensor for weight, tensor in weights.items() if tensor is not None}
    own = {weight: tensor in context.shapes for weight, tensor in shared.items()}
    return {
        weight: Found("draft", Origin("checkpoint", shared[weight]))
        if stored
        else Found("target", Origin("target", f"the draft stores no {shared[weight]}"))
        for weight, stored in own.items()
    }


def _word(part: Any) -> str:
    return part if isinstance(part, str) else ""
