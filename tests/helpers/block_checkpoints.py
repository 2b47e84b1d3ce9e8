"""Tiny block-draft checkpoints in every public format, and the target that they share matrices with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


def matrices(seed: int) -> Callable[..., torch.Tensor]:
    """``make(*shape)``: seeded normal tensors, one after the other."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


DFLASH2 = {
    **QWEN3,
    "architectures": ["DFlash2DraftModel"],
    "is_causal": False,
    "num_target_layers": LAYERS,
    "dflash_config": {
        "block_size": 5, "conv_group_size": 8, "conv_kernel_size": 3, "mask_token_id": 7, "selector_rank": 6,
        "selector_top_k": 4, "target_layer_ids": [0, 2], "output_multiplier": 0.5, "final_logit_softcapping": 4.0,
    },
}  # fmt: skip


def convolutions(config: Mapping[str, Any], seed: int = 2) -> dict[str, torch.Tensor]:
    """The tensors of the dynamic convolutions."""
    make, size, nested = matrices(seed), config["hidden_size"], config["dflash_config"]
    taps, groups = nested["conv_kernel_size"], size // nested["conv_group_size"]
    tensors = {}
    for i in range(config["num_hidden_layers"]):
        for kind in ("attention", "mlp"):
            tensors[f"layers.{i}.{kind}_conv.base_kernel"] = make(2, taps, size) * 0.5
            tensors[f"layers.{i}.{kind}_conv.kernel_projection.weight"] = make(2 * taps * groups, size) * 0.1
    return tensors


def selector(config: Mapping[str, Any], seed: int = 3) -> dict[str, torch.Tensor]:
    """The tensors of the candidate selector."""
    make, rank = matrices(seed), config["dflash_config"]["selector_rank"]
    return {
        "candidate_selector.predecessor_codebook": make(VOCAB, rank),
        "candidate_selector.successor_codebook": make(VOCAB, rank),
        "candidate_selector.hidden_projection.weight": make(rank, config["hidden_size"]) * 0.3,
    }


LILICORR = {
    **QWEN3,
    "architectures": ["LiLiCorrDraftModel"],
    "num_target_layers": LAYERS,
    "dflash_config": {
        "block_size": 5, "mask_token_id": 7, "target_layer_ids": [0, 2], "lilicorr_enabled": True,
        "lilicorr_candidate_topk": 4, "lilicorr_hidden_size": 16, "lilicorr_num_layers": 2, "lilicorr_num_heads": 2,
        "lilicorr_mlp_ratio": 2.0, "lilicorr_factor_dim": 6, "lilicorr_vector_eps": 1e-6, "lilicorr_logit_scale": 5.0,
    },
}  # fmt: skip


def cells(config: Mapping[str, Any], seed: int = 4) -> dict[str, torch.Tensor]:
    """The tensors of LiLiCorr's transformer."""
    make, nested, width = matrices(seed), config["dflash_config"], config["hidden_size"]
    size, block, top = nested["lilicorr_hidden_size"] or width, nested["block_size"], nested["lilicorr_candidate_topk"]
    heads, inner, factors = (
        nested["lilicorr_num_heads"],
        int(size * nested["lilicorr_mlp_ratio"]),
        nested["lilicorr_factor_dim"],
    )
    linears = {
        "feature_mlp.up_proj": (size, 5),
        "feature_mlp.down_proj": (size, size),
        "factor_input_proj": (size, 3 * size),
    }
    linears |= {name: (factors, size) for name in ("out_head", "in_head", "anchor_out_head")}
    if size != width:
        linears |= {name: (size, width) for name in ("token_proj", "pass_hidden_proj", "context_proj")}
    tensors = {"feature_norm.weight": 1 + make(5) * 0.1, "feature_norm.bias": make(5)}
    tensors |= {"slot_embedding": make(1, 1, block - 1, 1, size), "rank_embedding": make(1, 1, 1, top, size)}
    tensors |= {"relative_slot_bias": make(heads, 2 * block - 1), "same_slot_bias": make(heads)}
    tensors |= {name: 1 + 0.2 * make(size) for name in ("output_norm.weight", "anchor_norm.weight")}
    for i in range(nested["lilicorr_num_layers"]):
        at = f"layers.{i}."
        tensors |= {at + "attn_norm.weight": 1 + 0.2 * make(size), at + "mlp_norm.weight": 1 + 0.2 * make(size)}
        tensors |= {at + "attn.in_proj_weight": make(3 * size, size) * 0.3, at + "attn.in_proj_bias": make(3 * size)}
        linears |= {at + "attn.out_proj": (size, size)}
        linears |= {at + "mlp.up_proj": (inner, size), at + "mlp.down_proj": (size, inner)}
    for name, shape in linears.items():
        tensors |= {f"{name}.weight": make(*shape) * shape[1] ** -0.5, f"{name}.bias": 0.3 * make(shape[0])}
    return {f"lilicorr.{name}": tensor for name, tensor in tensors.items()}


XPRESS = {
    **QWEN3,
    "architectures": ["Qwen3XPressModel"],
    "num_target_layers": LAYERS,
    "xpress_block_size": 5,
    "xpress_rank": 6,
    "xpress_mlp_hidden": 10,
    "xpress_num_passes": 4,
    "xpress_topc": 0,
    "dflash_config": {"mask_token_id": 7, "target_layer_ids": [0, 2]},
}


def refiner(config: Mapping[str, Any], seed: int = 5) -> dict[str, torch.Tensor]:
    """The tensors of XPress's head."""
    make, rank, block = matrices(seed), config["xpress_rank"], config["xpress_block_size"]
    size, inner = config["hidden_size"], config["xpress_mlp_hidden"]
    shapes = {"w1": (VOCAB, rank), "w2": (VOCAB, rank), "down_h": (rank, size), "down_g": (rank, size)}
    shapes |= {
        "in_proj": (rank, 3 * rank),
        "mlp.gate_proj": (inner, rank),
        "mlp.up_proj": (inner, rank),
        "mlp.down_proj": (rank, inner),
    }
    tensors = {f"xpress_head.{name}.weight": make(*shape) * shape[1] ** -0.5 * 2 for name, shape in shapes.items()}
    return tensors | {"xpress_head.mix.L": make(rank, block, block)}


DOMINO = {
    **QWEN3,
    "architectures": ["DominoDraftModel"],
    "num_target_layers": LAYERS,
    "block_size": 4,
    "dflash_config": {
        "mask_token_id": 7, "target_layer_ids": [0, 2], "projector_type": "domino", "pure_draft_prefix_len": 1,
        "emb_dim": 6, "gru_hidden_dim": 10, "shift_label": True,
    },
}  # fmt: skip


def prefix_encoder(config: Mapping[str, Any], seed: int = 6) -> dict[str, torch.Tensor]:
    """The tensors of Domino's head."""
    make, size, nested = matrices(seed), config["hidden_size"], config["dflash_config"]
    inner, narrow = nested["gru_hidden_dim"], nested["emb_dim"]
    return {
        "prefix_gru.weight_ih_l0": make(3 * inner, size) * 0.3,
        "prefix_gru.weight_hh_l0": make(3 * inner, inner) * 0.3,
        "embed_proj.0.weight": make(narrow, size + inner) * 0.3,
        "embed_proj.2.weight": make(VOCAB, narrow) * 2,
    }


def tensors_of(method: str, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint of this method."""
    heads: dict[str, list[Callable[[Mapping[str, Any]], dict[str, torch.Tensor]]]] = {
        "dspark": [markov], "dflash2": [convolutions, selector], "lilicorr": [cells], "xpress": [refiner],
        "domino": [prefix_encoder],
    }  # fmt: skip
    tensors = backbone(config)
    for part in heads.get(method, []):
        tensors |= part(config)
    return tensors
