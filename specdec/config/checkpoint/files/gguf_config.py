"""Turns GGUF metadata and tensor names into the keys and names of a safetensors checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from specdec.config.checkpoint.files.gguf_metadata import GgufContents, TextList, read_gguf
from specdec.config.checkpoint.files.tokenizer import TokenizerInfo, tokenizer_from_list
from specdec.config.checkpoint.files.value import Checkpoint, Role

# GGUF metadata key (below the architecture's prefix) -> config.json key
_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "expert_count": "num_experts",
}
_ROPE_KEYS = {"type": "rope_type", "factor": "factor", "original_context_length": "original_max_position_embeddings"}
_TENSOR_NAMES = (
    (r"token_embd\.", "model.embed_tokens."),
    (r"output_norm\.", "model.norm."),
    (r"output\.", "lm_head."),
    (r"blk\.(\d+)\.attn_(q|k|v)\.", r"model.layers.\1.self_attn.\2_proj."),
    (r"blk\.(\d+)\.attn_(q|k)_norm\.", r"model.layers.\1.self_attn.\2_norm."),
    (r"blk\.(\d+)\.attn_output\.", r"model.layers.\1.self_attn.o_proj."),
    (r"blk\.(\d+)\.attn_norm\.", r"model.layers.\1.input_layernorm."),
    (r"blk\.(\d+)\.ffn_norm\.", r"model.layers.\1.post_attention_layernorm."),
    (r"blk\.(\d+)\.ffn_(gate|up|down)\.", r"model.layers.\1.mlp.\2_proj."),
    (r"blk\.(\d+)\.", r"model.layers.\1."),
)


def checkpoint_from_gguf(path: Path, role: Role) -> Checkpoint:
    """A GGUF file as a checkpoint. Raises CheckpointFault for a damaged file."""
    contents = read_gguf(path)
    return Checkpoint(
        config=config_from_gguf(contents),
        tensors={_tensor_name(n): s for n, s in contents.tensors.items()},
        role=role,
        location=str(path),
        weight_bytes=contents.size,
        file_format="gguf",
        read_tokenizer=lambda: _tokenizer(contents, path.name),
    )


def config_from_gguf(contents: GgufContents) -> dict[str, Any]:
    """The metadata under the names of ``config.json``; values that GGUF does not store are absent."""
    metadata = contents.metadata
    architecture = str(metadata.get("general.architecture", ""))
    config: dict[str, Any] = {"model_type": architecture}
    for key, name in _KEYS.items():
        if (value := metadata.get(f"{architecture}.{key}")) is not None:
            config[name] = value[0] if isinstance(value, list) and len(set(value)) == 1 else value
    rope = {name: metadata.get(f"{architecture}.rope.scaling.{key}") for key, name in _ROPE_KEYS.items()}
    if rope["rope_type"] not in (None, "none"):
        config["rope_scaling"] = {k: v for k, v in rope.items() if v is not None}
    embeddings = contents.tensors.get("token_embd.weight")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if "vocab_size" not in config and (embeddings or isinstance(tokens, TextList)):
        config["vocab_size"] = embeddings[0] if embeddings else len(tokens or ())
    config["tie_word_embeddings"] = "output.weight" not in contents.tensors
    return config


def _tensor_name(name: str) -> str:
    for pattern, replacement in _TENSOR_NAMES:
        renamed, count = re.subn(f"^{pattern}", replacement, name)
        if count:
            return renamed
    return name


def _tokenizer(contents: GgufContents, name: str) -> TokenizerInfo | None:
    tokens = contents.metadata.get("tokenizer.ggml.tokens")
    return tokenizer_from_list(tokens, name) if isinstance(tokens, TextList) else None
