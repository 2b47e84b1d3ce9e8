"""Tiny random targets with recurrent layers, one of each family that transformers ships."""

from __future__ import annotations

from typing import Any

import torch

VOCAB = 61
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
BARE = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
}  # fmt: skip
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
MAMBA = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4}
MAMBA2 = {
    "n_groups": 2,
    "ssm_state_size": 8,
    "expand": 2,
    "conv_kernel": 4,
    "chunk_size": 4,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
}
BAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_expand": 2, "mamba_d_conv": 4,
    "mamba_chunk_size": 4,
}  # fmt: skip
CONV = {"layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "block_multiple_of": 8}

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": {**COMMON, **DELTA, **EXPERTS},
    "qwen3_5_text": {**COMMON, **DELTA},
    "qwen3_5_moe_text": {**COMMON, **DELTA, **EXPERTS},
    "olmo_hybrid": {**COMMON, **DELTA},
    "nemotron_h": {
        **COMMON, **MAMBA2, "layers_block_type": ["mamba", "attention", "moe", "mamba"], "num_hidden_layers": 4,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
    },
    "bamba": {**COMMON, **BAMBA, "attn_layer_indices": [1]},
    "falcon_h1": {**COMMON, **BAMBA, "mamba_d_ssm": 64},  # attention and a state in the same layer
    "granitemoehybrid": {
        **COMMON, **BAMBA, "layer_types": DELTA["layer_types"], "num_local_experts": 2, "num_experts_per_tok": 1,
        "shared_intermediate_size": 16,
    },
    # Mamba-1 forms start from nothing whenever they are given several tokens
    "jamba": {
        **COMMON, **MAMBA, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "use_mamba_kernels": False,
    },
    "zamba": {**COMMON, **MAMBA, "n_mamba_heads": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "zamba2": {
        **COMMON, **BAMBA, "mamba_ngroups": 2, "layers_block_type": ["mamba", "hybrid", "mamba"], "num_mem_blocks": 1,
        "adapter_rank": 4, "attention_head_dim": 16,
    },
    "zaya": COMMON,  # delayed values and convolutions inside attention
    "lfm2": {**COMMON, **CONV},
    "lfm2_moe": {**COMMON, **CONV, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_dense_layers": 1},
    "mamba": BARE,
    "falcon_mamba": BARE,
    "mamba2": {**BARE, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4, "expand": 2},
}  # fmt: skip


def hybrid_model(family: str) -> Any:
    """A random model of a family, float32, vocabulary 61."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(3)
    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**FAMILIES[family], **ids), dtype=torch.float32)
    scale = 0.5 if "num_attention_heads" not in FAMILIES[family] else 0.15
    with torch.no_grad():  # larger than initialised, so that text does not loop at once
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "norm" not in name and "A_log" not in name:
                weight.normal_(0, scale)
    return model.eval()
