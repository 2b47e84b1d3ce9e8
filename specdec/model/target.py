"""Loads a target and runs one forward of it over slots of the KV cache."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specdec.errors import OutOfMemory, TargetError
from specdec.model.accelerate import native_stack
from specdec.model.attention import AttentionLayout, Mask, attention_layout
from specdec.model.batch import Batch
from specdec.model.capture import HiddenStateCapture
from specdec.model.handle import TargetHandle
from specdec.model.kv_cache import CachePlan, SlotCache
from specdec.model.load.gguf import converted_directory
from specdec.model.load.locate import locate, locate_folder, quiet_transformers
from specdec.model.load.support import attention_implementation, check_supported, declares_masks

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CACHE_ARGUMENTS = ("past_key_values", "cache_params")
DTYPE_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32"}


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype | None:
    """A torch dtype; None for ``auto`` (the checkpoint's own)."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = DTYPE_ALIASES.get(dtype, dtype)
    if name == "auto":
        return None
    if name not in DTYPES:
        raise TargetError(f"target.dtype is {dtype!r}; allowed: auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def resolve_device(device: str | torch.device) -> torch.device:
    """A device; ``auto`` is CUDA when there is one, else the CPU."""
    if isinstance(device, torch.device):
        return device
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise TargetError(f"engine.device is {device!r}; allowed: auto, cpu, cuda, cuda:N") from None
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise TargetError(f"engine.device is {device!r} but torch sees no CUDA device; use device=cpu or auto")
    return resolved


@dataclass
class Target:
    """A loaded target, its tokenizer (if it has one) and how it attends."""

    model: Any
    tokenizer: Any | None
    layout: AttentionLayout
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    model_max_len: int | None  # positions the checkpoint was made for; None = unbounded
    eos_token_ids: frozenset[int]
    path: Path | None = None
    keeps_rows: bool = True  # forward takes logits_to_keep
    cache_argument: str = "past_key_values"  # what forward calls its cache
    state_bytes: int = 0  # of the recurrent states of one request

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in memory, shared ones once."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    def handle(self, max_model_len: int, cache: SlotCache | None = None, drafts: Any | None = None) -> TargetHandle:
        """The parts a speculator may share."""
        head = self.model.get_output_embeddings()
        return TargetHandle(
            model=self.model,
            embed_tokens=self.model.get_input_embeddings(),
            lm_head=head,
            vocab_size=self.vocab_size,
            hidden_size=self.model.config.get_text_config(decoder=True).hidden_size,
            dtype=self.dtype,
            device=self.device,
            max_model_len=max_model_len,
            tokenizer=self.tokenizer,
            drafts=drafts,
            kv_cache=cache,
        )

    def forward(
        self, cache: SlotCache, plan: CachePlan, input_ids: torch.Tensor, positions: torch.Tensor, rows: int, mask: Mask
    ) -> torch.Tensor:
        """Logits [R, rows, V] of the last ``rows`` tokens of each request; writes keys and values by ``plan``."""
        cache.plan = plan
        extra = {"logits_to_keep": rows} if self.keeps_rows else {}
        output = self.model(
            input_ids=input_ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            **{self.cache_argument: cache},
            **extra,
        )
        logits = output.logits
        return logits if self.keeps_rows else logits[:, -rows:]

    def logits(self, batch: Batch, capture: HiddenStateCapture | None = None) -> torch.Tensor:
        """Logits [sum(batch.logits_counts), V] of the rows that are sampled; ``capture`` takes hidden states."""
        native = native_stack(self)
        if native is None or not native.runs(batch):
            return self.padded_logits(batch)
        if capture is None:
            return native(batch)[0]
        logits, last, aux = native(batch, capture.want_last, capture.boundaries)
        capture.put(last, aux)
        return logits

    def padded_logits(self, batch: Batch) -> torch.Tensor:
        """The same through the transformers model, whose hooks take hidden states."""
        p = batch.padded
        return batch.needed(self.forward(batch.cache, p.plan, p.input_ids, p.positions, batch.rows_needed, p.mask))


def load_target(
    model: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    tokenizer: Any = None,
    revision: str | None = None,
) -> Target:
    """Load a target by directory, .gguf file, cached hub id or packaged name; raises ``TargetError``.

    ``tokenizer``: a tokenizer, or the directory or hub id of one; None = the target's own.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    device, wanted = resolve_device(device), resolve_dtype(dtype)
    path = locate(str(model), revision)
    if path.is_file():
        path = converted_directory(path, wanted or torch.bfloat16)
    try:
        config = AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # configuration classes validate in ways of their own
        raise TargetError(f"cannot read the configuration of {path}: {_first_line(error)}") from error
    cls = check_supported(config)
    try:
        with quiet_transformers():
            loaded, info = AutoModelForCausalLM.from_pretrained(
                str(path),
                config=config,
                dtype=wanted or "auto",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                attn_implementation=attention_implementation(cls, config),
                output_loading_info=True,
            )
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"the weights of {path} do not fit {device}: {_first_line(error)}") from error
    except (ValueError, OSError, RuntimeError, SafetensorError) as error:
        raise TargetError(f"cannot load the weights of {path}: {_first_line(error)}") from error
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise TargetError(
            f"{path} lacks {len(missing)} weights of {cls.__name__}, for example {', '.join(missing[:3])}"
        )
    return prepare_target(loaded, device=device, tokenizer=_tokenizer(tokenizer, path), path=path)


def prepare_target(
    model: Any, *, device: str | torch.device = "auto", tokenizer: Any = None, path: Path | None = None
) -> Target:
    """A ``Target`` around a transformers model that is already in memory."""
    device = resolve_device(device)
    cls = check_supported(model.config)
    wanted = attention_implementation(cls, model.config)
    if model.config.get_text_config(decoder=True)._attn_implementation != wanted:
        model.set_attn_implementation(wanted)
    try:
        model = model.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"the weights do not fit {device}: {_first_line(error)}") from error
    model.requires_grad_(False)
    text = model.config.get_text_config(decoder=True)
    arguments = inspect.signature(model.forward).parameters
    target = Target(
        model=model,
        tokenizer=tokenizer,
        layout=attention_layout(model, device),
        device=device,
        dtype=model.dtype,
        vocab_size=text.vocab_size,
        model_max_len=getattr(text, "max_position_embeddings", None),
        eos_token_ids=_eos_ids(model, tokenizer),
        path=path,
        keeps_rows="logits_to_keep" in arguments,
        cache_argument=next((name for name in CACHE_ARGUMENTS if name in arguments), CACHE_ARGUMENTS[0]),
    )
    if target.layout.recurrent:
        from specdec.model.recurrent.probe import install_mixers

        target.state_bytes = install_mixers(model, target.layout.recurrent, target.cache_argument)
    if target.layout.recurrent or not declares_masks(cls):
        from specdec.model.load.mask_probe import check_masks

        check_masks(target)
    return target


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, by the generation config, the config or the tokenizer."""
    text = model.config.get_text_config(decoder=True)
    generation = getattr(model, "generation_config", None)
    for source in (getattr(generation, "eos_token_id", None), getattr(text, "eos_token_id", None)):
        if source is not None:
            return frozenset(source if isinstance(source, (list, tuple)) else [source])
    eos = getattr(tokenizer, "eos_token_id", None)
    return frozenset() if eos is None else frozenset([eos])


def _tokenizer(given: Any, path: Path) -> Any | None:
    if given is None:
        return _load_tokenizer(path)
    if not isinstance(given, (str, Path)):
        return given
    found = _load_tokenizer(locate_folder(str(given)))
    if found is None:
        raise TargetError(f"target.tokenizer {str(given)!r} holds no tokenizer; name a directory with tokenizer.json")
    return found


def _load_tokenizer(path: Path) -> Any | None:
    """The tokenizer beside the weights; None when there is none (requests are then token ids)."""
    if not any((path / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, KeyError, ImportError) as error:
        raise TargetError(f"cannot load the tokenizer of {path}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
