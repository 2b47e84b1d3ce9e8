"""Which targets the embedded engine can run: decided from facts of the configuration and the model class."""

from __future__ import annotations

from typing import Any

from transformers.cache_utils import get_layer_types_and_kwargs

from specdec.errors import TargetError
from specdec.model.attention import BESIDE, FULL, RECURRENT, SHARED, SLIDING

WAY_OUT = "run it with `specdec export vllm`"


def model_class(config: Any) -> Any:
    """The transformers class that would be built for this configuration; raises ``TargetError`` if there is none."""
    from transformers import AutoModelForCausalLM

    mapping = AutoModelForCausalLM._model_mapping
    if type(config) not in mapping:
        raise TargetError(
            f"{_name(config)} is not a causal language model that transformers knows; allowed: any class of "
            f"AutoModelForCausalLM; {WAY_OUT}"
        )
    cls = mapping[type(config)]
    return cls[0] if isinstance(cls, (tuple, list)) else cls


def check_supported(config: Any) -> Any:
    """Refuse targets whose state cannot be rolled back; returns the model class."""
    name = _name(config)
    if getattr(config, "is_encoder_decoder", False):
        raise TargetError(f"{name} is an encoder-decoder; the embedded engine runs decoders; {WAY_OUT}")
    cls = model_class(config)
    text = config.get_text_config(decoder=True)
    try:
        kinds = set(get_layer_types_and_kwargs(text)[0])
    except ValueError as error:
        raise TargetError(f"{name} describes its layers in a way that transformers refuses: {error}") from error
    other = sorted(kinds - {FULL, SLIDING, SHARED, *RECURRENT, *BESIDE})
    if other:
        raise TargetError(
            f"{name} has layers of kind {', '.join(other)}; the embedded engine can roll back {FULL}, {SLIDING} and "
            f"recurrent ones only; {WAY_OUT}"
        )
    if getattr(cls, "_is_stateful", False) and not kinds & {*RECURRENT, *BESIDE}:
        raise TargetError(
            f"{name} ({cls.__name__}) keeps a recurrent state of its own, outside transformers' cache, which cannot be "
            f"rolled back after a rejection; {WAY_OUT}"
        )
    return cls


def declares_masks(cls: Any) -> bool:
    """Whether the class says that its attention uses the mask it is given; others are tried (``mask_probe``)."""
    return bool(getattr(cls, "_supports_attention_backend", False))


def attention_implementation(cls: Any, config: Any) -> str:
    """``sdpa`` where the class has it, else ``eager``; soft-capped attention scores need ``eager``."""
    text = config.get_text_config(decoder=True)
    capped = getattr(text, "attn_logit_softcapping", None) is not None
    return "sdpa" if getattr(cls, "_supports_sdpa", False) and not capped else "eager"


def _name(config: Any) -> str:
    architectures = getattr(config, "architectures", None)
    return architectures[0] if architectures else (getattr(config, "model_type", "") or type(config).__name__)
