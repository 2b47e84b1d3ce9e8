"""What target and draft take of the device's memory, and how many tokens of KV cache are left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.final.recurrent_states import layer_counts, state_bytes
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.functions import BYTES

STORED = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def weight_bytes(checkpoint: Checkpoint | None, facts: Mapping[str, Any]) -> int | None:
    """Bytes of the weights: as the checkpoint states, as its files have, or from shapes and dtype; None when not known."""
    if checkpoint is None:
        return None
    stated = checkpoint.config.get("weight_bytes")
    if isinstance(stated, int):
        return stated
    if checkpoint.weight_bytes is not None:
        return checkpoint.weight_bytes
    if not checkpoint.tensors:
        return None
    default = BYTES.get(str(facts.get("dtype")), 2)
    return sum(
        math.prod(shape) * STORED.get(checkpoint.tensor_dtypes.get(name, ""), default)
        for name, shape in checkpoint.tensors.items()
    )


def kv_bytes_per_token(checkpoint: Checkpoint | None, facts: Mapping[str, Any]) -> int | None:
    """Bytes of KV cache for one token over all layers; None when the config does not tell.

    Dense attention keeps a key and a value per KV head; latent attention (MLA) one latent and the rotary key.
    """
    if checkpoint is None:
        return None
    stated = checkpoint.config.get("kv_bytes_per_token")
    if isinstance(stated, int):
        return stated
    kind = str(facts.get("kv_cache_dtype") or "auto")
    size = 1 if kind.startswith(("fp8", "int8")) else BYTES.get(kind if kind in BYTES else str(facts.get("dtype")))
    layers = facts.get("num_hidden_layers")
    if size is None or not layers:
        return None
    layers, _ = layer_counts(checkpoint.config, layers)
    latent = checkpoint.config.get("kv_lora_rank")
    if isinstance(latent, int):
        rotary = checkpoint.config.get("qk_rope_head_dim")
        return int(layers * (latent + (rotary if isinstance(rotary, int) else 0)) * size)
    heads, head_dim = facts.get("num_key_value_heads") or facts.get("num_attention_heads"), facts.get("head_dim")
    if not head_dim and facts.get("hidden_size") and facts.get("num_attention_heads"):
        head_dim = facts["hidden_size"] // facts["num_attention_heads"]
    return int(layers * 2 * heads * head_dim * size) if heads and head_dim else None


def recurrent_bytes(checkpoint: Checkpoint | None, facts: Mapping[str, Any], requests: int, k: int) -> int:
    """Bytes of the snapshots of recurrent states: of each request, one per row to verify and the one before them."""
    layers = facts.get("num_hidden_layers")
    if checkpoint is None or not layers:
        return 0
    element = BYTES.get(str(facts.get("dtype")), 2)
    return requests * (k + 2) * state_bytes(checkpoint.config, layers, element)


def plan_memory(
    *, target_weights: int | None, draft_weights: int | None, target_kv: int | None, draft_kv: int | None,
    draft_logits: int, states: int = 0, engine: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Diagnostic]]:  # fmt: skip
    """The numbers of ``config.resources`` (bytes, tokens), and an error when the weights alone do not fit.

    ``engine.memory_bytes`` x ``gpu_memory_utilization`` is what there is; both models' weights, kept draft logits, recurrent
    states and ``engine.min_kv_bytes`` are what is needed.
    """
    memory, share = engine.get("memory_bytes"), engine.get("gpu_memory_utilization") or 1.0
    have = None if memory is None else math.floor(memory * share + 1e-6)
    known = target_weights is not None and draft_weights is not None
    need = (target_weights or 0) + (draft_weights or 0) + draft_logits + states
    per_token = None if target_kv is None or draft_kv is None else target_kv + draft_kv
    left = have - need if have is not None and known else None
    tokens = max(left, 0) // per_token if left is not None and per_token else None
    numbers: dict[str, Any] = {
        "target_weight_bytes": target_weights,
        "draft_weight_bytes": draft_weights,
        "target_kv_bytes_per_token": target_kv,
        "draft_kv_bytes_per_token": draft_kv,
        "kv_bytes_per_token": per_token,
        "draft_logits_bytes": draft_logits,
        **({"recurrent_state_bytes": states} if states else {}),
        "memory_bytes": have,
        "kv_bytes": None if left is None else max(left, 0),
        "kv_tokens": tokens,
    }
    reserve = engine.get("min_kv_bytes") or 0
    if have is None or need + reserve <= have:
        return numbers, []
    parts = [
        f"target weights {target_weights}" if target_weights else "",
        f"draft weights {draft_weights}" if draft_weights else "",
    ]
    parts += [f"kept draft logits {draft_logits}" if draft_logits else ""]
    parts += [f"recurrent states {states}" if states else ""]
    what = " + ".join(p for p in parts if p)
    message = f"{what} = {need} bytes, but memory_bytes {memory} x gpu_memory_utilization {share:g} is {have} bytes"
    if reserve:
        message += f" (and min_kv_bytes {reserve} must be left)"
    wanted = math.ceil((need + reserve) / (memory or 1) * 100) / 100
    fix = f"set engine.gpu_memory_utilization to at least {wanted:g}" if wanted <= 1 else (
        f"no share of {memory} bytes is enough: use a smaller draft or target, quantized weights or more devices"
    )  # fmt: skip
    return numbers, [Diagnostic("does-not-fit", "error", "engine.gpu_memory_utilization", message, fix)]
