"""What a draft's heads, layers and shared weights look like, beside the rules that its record states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.facts.tensor_names import layer_count
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin

MISMATCH = "checkpoint-config-vs-weights"


def check_layers(context: CheckContext) -> Iterator[Diagnostic]:
    """``layer_count``: the fact that counts decoder layers; ``usual_layers``: more than this is odd for a head."""
    fact, usual = str(context.rules.get("layer_count")), context.rules.get("usual_layers")
    claimed, stored = context.fact(fact), layer_count(context.shapes or {})
    if not usual or claimed is None or claimed <= usual or stored > usual:
        return
    message = f"heads of this kind have at most {usual} decoder layers; the config says {claimed}, which may be the target's number"
    message += f"; the weights hold {stored}, and they count" if stored else ""
    fix = f"set {fact}: {stored} in the config.json" if stored else "compare with the weights"
    yield finding("head-layer-count-unusual", context.at(fact), message, fix, "warning")


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
