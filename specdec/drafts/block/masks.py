"""The token that stands for an undrafted position, and the vector it enters the draft with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Weights

_VECTOR, _TOKEN = "mask_embedding", "mask_token_id"
_CONVERT = (
    'python -c "import torch; from safetensors.torch import save_file; '
    "x = torch.load('{pickle}', weights_only=True); d = x if isinstance(x, dict) else dict(embedding=x); "
    "save_file(dict(mask_embedding=d['embedding'].contiguous()) | (dict(mask_token_id=torch.tensor(int(d['mask_token_id']))) "
    "if 'mask_token_id' in d else dict()), '{target}')\""
)


def read_mask(draft: Mapping[str, Any], weights: Weights) -> tuple[int, torch.Tensor | None]:
    """The mask token's id, and the vector [H] that replaces its embedding; None where the embedding table serves.

    The vector is the tensor ``mask_embedding``, in the checkpoint or in ``mask_embedding.safetensors`` beside it, where
    ``mask_token_id`` may stand too. Raises ``DraftError`` for a pickle, for a width that is not the draft's, for a P-EAGLE
    placeholder (``mask_hidden``), and when nobody names the token or two ids differ.
    """
    if "mask_hidden" in weights:
        raise DraftError(f"{weights.location}: tensor mask_hidden is a P-EAGLE placeholder; use method peagle")
    stored = _beside(weights)
    vector = stored.take(_VECTOR) if _VECTOR in stored else None
    if vector is not None and vector.numel() != draft["hidden_size"]:
        raise DraftError(
            f"{weights.location}: {_VECTOR} has shape {list(vector.shape)}, and the draft is {draft['hidden_size']} wide"
        )
    token = draft.get(_TOKEN)
    if _TOKEN in stored:
        found = int(stored.take(_TOKEN))
        if token is not None and token != found:
            raise DraftError(
                f"{weights.location}: the config.json says {_TOKEN} {token}, the mask embedding's file {found}"
            )
        token = found
    if token is None:
        raise DraftError(f"{weights.location}: the config.json names no {_TOKEN}, so there is nothing to fill in")
    return int(token), None if vector is None else vector.flatten()


def _beside(weights: Weights) -> Weights:
    """Where the vector would be: the checkpoint itself, or a file of its own in the same folder."""
    if _VECTOR in weights or (folder := weights.folder) is None:
        return weights
    path, pickle = (folder / f"{_VECTOR}.{suffix}" for suffix in ("safetensors", "pt"))
    if path.is_file():
        return Weights(str(path), dtype=weights.dtype, device=weights.device)
    if pickle.is_file():
        command = _CONVERT.format(pickle=pickle, target=path)
        raise DraftError(f"{pickle} is a pickle, which can run code when it is read; convert it with {command}")
    return weights
