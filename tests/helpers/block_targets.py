"""Block drafts for any tiny target: a checkpoint of random weights in the target's geometry, and the same for its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from block_checkpoints import save


def native_draft(
    folder: Path, target: Any, method: str, block: int = 4, *, layers: tuple[int, ...] = (0, 1), strength: float = 1.0
) -> str:
    """Save a DFlash or DSpark draft for a transformers llama; ``strength`` scales what its layers add."""
    config = target.config
    size, vocab = config.hidden_size, config.vocab_size
    generator = torch.Generator().manual_seed(17)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    heads, width = config.num_attention_heads, size // config.num_attention_heads
    kv = config.num_key_value_heads
    tensors = {
        "fc.weight": matrix(size, len(layers) * size),
        "hidden_norm.weight": torch.ones(size),
        "norm.weight": torch.ones(size),
        "layers.0.input_layernorm.weight": torch.ones(size),
        "layers.0.post_attention_layernorm.weight": torch.ones(size),
        "layers.0.self_attn.q_proj.weight": matrix(heads * width, size),
        "layers.0.self_attn.k_proj.weight": matrix(kv * width, size),
        "layers.0.self_attn.v_proj.weight": matrix(kv * width, size),
        "layers.0.self_attn.o_proj.weight": strength * matrix(size, heads * width),
        "layers.0.self_attn.q_norm.weight": torch.ones(width),
        "layers.0.self_attn.k_norm.weight": torch.ones(width),
        "layers.0.mlp.gate_proj.weight": matrix(48, size),
        "layers.0.mlp.up_proj.weight": matrix(48, size),
        "layers.0.mlp.down_proj.weight": strength * matrix(size, 48),
    }
    facts: dict[str, Any] = {
        "model_type": "qwen3", "hidden_size": size, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": width, "vocab_size": vocab,
        "max_position_embeddings": config.max_position_embeddings, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "layer_types": ["full_attention"], "num_target_layers": config.num_hidden_layers, "block_size": block,
    }  # fmt: skip
    if method == "dspark":
        facts |= {"architectures": ["Qwen3DSparkModel"], "mask_token_id": 1, "target_layer_ids": [i - 1 for i in layers],
                  "markov_rank": 4, "markov_head_type": "vanilla", "enable_confidence_head": True,
                  "confidence_head_with_markov": True}  # fmt: skip
        tensors |= {
            "markov_head.markov_w1.weight": matrix(vocab, 4),
            "markov_head.markov_w2.weight": 4 * matrix(vocab, 4),
            "confidence_head.proj.weight": matrix(1, size + 4),
            "confidence_head.proj.bias": matrix(1),
        }
    else:
        facts |= {"architectures": ["DFlashDraftModel"],
                  "dflash_config": {"mask_token_id": 1, "target_layer_ids": [i - 1 for i in layers]}}  # fmt: skip
    return str(save(folder, facts, tensors))
