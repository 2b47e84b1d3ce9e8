"""What the recurrent layers of a target keep for a request, by the shapes that its config.json states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECURRENT = {"linear_attention", "conv", "mamba", "hybrid", "hybrid_sliding"}  # kinds of layers with a state
BESIDE = {"hybrid", "hybrid_sliding"}  # of these, with attention as well
STATE_BYTES = 4  # states are kept in float32, whatever the weights are


def layer_counts(config: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """Layers with keys and values, and layers with a recurrent state."""
    kinds = _first(config, "layer_types", "layers_block_type")
    if isinstance(kinds, list):
        recurrent = sum(kind in RECURRENT for kind in kinds)
        beside = sum(kind in BESIDE for kind in kinds)
        idle = sum(kind in ("moe", "mlp") for kind in kinds)
        return len(kinds) - recurrent - idle + beside, recurrent
    pattern = config.get("hybrid_override_pattern")  # M = state space, * = attention, others = MLP
    if isinstance(pattern, str):
        return pattern.count("*"), pattern.count("M")
    if _elements(config) == (0, 0):
        return layers, 0
    if isinstance(interval := config.get("full_attention_interval"), int) and interval > 0:
        return layers // interval, layers - layers // interval
    if isinstance(period := config.get("attn_layer_period"), int) and period > 0:
        attending = len(range(config.get("attn_layer_offset") or 0, layers, period))
        return attending, layers - attending
    if isinstance(indices := config.get("attn_layer_indices"), list):
        return len(indices), layers - len(indices)
    # every layer has a state; those with attention have heads of it
    return (layers if config.get("num_attention_heads") else 0), layers


def state_bytes(config: Mapping[str, Any], layers: int, element: int) -> int:
    """Bytes of one request's states, once; ``element`` is what the engine keeps convolutions in."""
    _, recurrent = layer_counts(config, layers)
    convolution, state = _elements(config)
    return recurrent * (convolution * element + state * STATE_BYTES)


def _elements(config: Mapping[str, Any]) -> tuple[int, int]:
    """Elements of a layer's convolution and of its recurrent state; 0 where it has none."""
    hidden = config.get("hidden_size") or 0
    if heads := config.get("linear_num_value_heads"):  # gated delta rule
        key, value = config.get("linear_key_head_dim") or 0, config.get("linear_value_head_dim") or 0
        channels = 2 * (config.get("linear_num_key_heads") or heads) * key + heads * value
        return channels * (config.get("linear_conv_kernel_dim") or 4), heads * key * value
    kernel = _first(config, "mamba_d_conv", "conv_kernel") or 4
    size = _first(config, "ssm_state_size", "mamba_d_state", "state_size")
    groups = _first(config, "n_groups", "mamba_n_groups", "mamba_ngroups")
    if size and groups:  # Mamba-2
        inner = config.get("mamba_d_ssm") or int((_first(config, "mamba_expand", "expand") or 2) * hidden)
        heads, width = _first(config, "mamba_num_heads"), _first(config, "mamba_head_dim")
        inner = heads * width if heads and width else inner
        return (inner + 2 * groups * size) * kernel, inner * size
    if size:  # Mamba
        inner = int((_first(config, "mamba_expand", "expand") or 2) * hidden)
        return inner * kernel, inner * size
    return hidden * (config.get("conv_L_cache") or 0), 0


def _first(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)
