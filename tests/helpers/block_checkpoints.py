"""Tiny block-draft checkpoints in every public format, and the target that they share matrices with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import specdec
from specdec.config.final.speculative_config import SpeculativeConfig

VOCAB, HIDDEN, LAYERS = 64, 32, 4
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5000.0,
    "layer_types": ["full_attention", "full_attention"],
}
DFLASH = {
    **QWEN3,
    "architectures": ["DFlashDraftModel"],
    "block_size": 5,
    "num_target_layers": LAYERS,
    "dflash_config": {"mask_token_id": 7, "target_layer_ids": [0, 2]},
}
DSPARK = {
    **QWEN3,
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 4,
    "num_target_layers": LAYERS,
    "mask_token_id": 7,
    "target_layer_ids": [0, 2],
    "markov_rank": 16,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


@dataclass
class Shared:
    """What a draft takes of a target."""

    embed_tokens: torch.nn.Embedding
    lm_head: torch.nn.Linear
    vocab_size: int = VOCAB
    hidden_size: int = HIDDEN
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def shared() -> Shared:
    """A target's embedding and head with seeded weights."""
    generator = torch.Generator().manual_seed(99)
    embed, head = torch.nn.Embedding(VOCAB, HIDDEN), torch.nn.Linear(HIDDEN, VOCAB, bias=False)
    for module in (embed, head):
        module.weight = torch.nn.Parameter(torch.randn(VOCAB, HIDDEN, generator=generator), requires_grad=False)
    return Shared(embed, head)


def backbone(config: Mapping[str, Any], seed: int = 0, features: int = 2) -> dict[str, torch.Tensor]:
    """The tensors of a DFlash backbone, as native checkpoints name them."""
    heads, kv, width, inner = (
        config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    )
    size, generator = config["hidden_size"], torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    def norm(length: int) -> torch.Tensor:
        return 1 + 0.3 * torch.randn(length, generator=generator)

    tensors = {
        "fc.weight": matrix(size, features * HIDDEN),
        "hidden_norm.weight": norm(size),
        "norm.weight": norm(size),
    }
    for i in range(config["num_hidden_layers"]):
        at = f"layers.{i}."
        tensors |= {
            at + "input_layernorm.weight": norm(size),
            at + "post_attention_layernorm.weight": norm(size),
            at + "self_attn.q_proj.weight": 3 * matrix(heads * width, size),
            at + "self_attn.k_proj.weight": 3 * matrix(kv * width, size),
            at + "self_attn.v_proj.weight": matrix(kv * width, size),
            at + "self_attn.o_proj.weight": matrix(size, heads * width),
            at + "self_attn.q_norm.weight": norm(width),
            at + "self_attn.k_norm.weight": norm(width),
            at + "mlp.gate_proj.weight": matrix(inner, size),
            at + "mlp.up_proj.weight": matrix(inner, size),
            at + "mlp.down_proj.weight": matrix(size, inner),
        }
    return tensors


def markov(config: Mapping[str, Any], seed: int = 1, rows: int = VOCAB) -> dict[str, torch.Tensor]:
    """The tensors of DSpark's two heads."""
    rank, size, generator = config["markov_rank"], config["hidden_size"], torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tensors = {}
    if rank:
        tensors = {
            "markov_head.markov_w1.weight": matrix(VOCAB, rank),
            "markov_head.markov_w2.weight": matrix(rows, rank),
        }
    if config.get("markov_head_type") == "gated" and rank:
        tensors |= {
            "markov_head.gate_proj.weight": matrix(rank, size + rank),
            "markov_head.gate_proj.bias": matrix(rank),
        }
    if config.get("markov_head_type") == "rnn" and rank:
        tensors |= {
            "markov_head.joint_proj.weight": matrix(3 * rank, 2 * rank + size),
            "markov_head.joint_proj.bias": matrix(3 * rank),
        }
    if config.get("enable_confidence_head"):
        width = size + rank * config["confidence_head_with_markov"]
        tensors |= {"confidence_head.proj.weight": matrix(1, width) * 0.1, "confidence_head.proj.bias": matrix(1)}
    return tensors


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Path:
    """Write a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def resolved(folder: Path, method: str | None = None, k: int | None = None, **options: Any) -> SpeculativeConfig:
    """The finalized configuration of a checkpoint for the tiny target."""
    speculative = {"model": str(folder), "method": method, "num_speculative_tokens": k, **options}
    return specdec.resolve(
        {"target": {"model": "tiny"}, "speculative": speculative, "engine": {"max_num_seqs": 4}}, target_config=TARGET
    ).unwrap()
