"""Does it fit: bytes of KV per token, what is free, and the largest length when the user names none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdec.errors import OutOfMemory

if TYPE_CHECKING:
    from specdec.model.target import Target

SHARE_FOR_KV = 0.5  # of what is free, when max_model_len is chosen here
FALLBACK_LENGTH = 4096  # for targets that declare no longest length
GB = 1e9


def kv_bytes_per_token(target: Target) -> int:
    """Bytes of keys and values that one token occupies over all layers."""
    text = target.model.config.get_text_config(decoder=True)
    count = target.layout.num_kv_layers
    # a config whose layers differ answers for a single layer only
    differ = getattr(text, "is_heterogeneous", False)
    layers = [text.per_layer_config[i] for i in range(count)] if differ else [text] * count
    values = 0
    for layer in layers:
        heads = layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None) or heads
        values += 2 * kv_heads * (getattr(layer, "head_dim", None) or layer.hidden_size // heads)
    return values * target.dtype.itemsize


def free_bytes(device: torch.device, utilization: float = 1.0) -> int | None:
    """Free memory of the device; None where it cannot be told. ``utilization``: share of a GPU that may be taken."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(free - (1.0 - utilization) * total)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def choose_max_model_len(
    target: Target, asked: int | None, max_num_seqs: int, utilization: float = 1.0, max_drafts: int = 0
) -> int:
    """The longest request; an explicit value is kept or refused, never changed.

    Raises ``OutOfMemory`` when the KV slots cannot fit, or the snapshots of recurrent states next to them.
    """
    per_token, free = kv_bytes_per_token(target), free_bytes(target.device, utilization)
    snapshots = max_num_seqs * (2 + max_drafts) * target.state_bytes
    if free is not None and snapshots:
        free -= snapshots
        if free < 0:
            raise OutOfMemory(
                f"the recurrent states need {snapshots / GB:.2f} GB (max_num_seqs {max_num_seqs} x {2 + max_drafts} "
                f"snapshots x {target.state_bytes} bytes); lower max_num_seqs or num_speculative_tokens"
            )
    longest = target.model_max_len
    if asked is None:
        length = longest or FALLBACK_LENGTH
        if free is not None and per_token:
            length = min(length, int(free * SHARE_FOR_KV) // (per_token * max_num_seqs) - 1)
        if length < 16:
            raise OutOfMemory(_message(16, max_num_seqs, per_token, free or 0))
        return length
    if asked < 2 or (longest is not None and asked > longest):
        bound = f"2 to {longest}" if longest is not None else "at least 2"
        raise OutOfMemory(f"max_model_len is {asked}; allowed: {bound}, the length this target was made for")
    if free is not None and per_token * max_num_seqs * (asked + 1) > free:
        raise OutOfMemory(_message(asked, max_num_seqs, per_token, free))
    return asked


def _message(length: int, max_num_seqs: int, per_token: int, free: int) -> str:
    need = per_token * max_num_seqs * (length + 1)
    return (
        f"the KV cache needs {need / GB:.2f} GB (max_num_seqs {max_num_seqs} x max_model_len {length} x {per_token} "
        f"bytes a token) but {free / GB:.2f} GB are free; lower max_num_seqs or max_model_len"
    )
