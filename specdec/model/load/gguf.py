"""GGUF targets: converted once into a safetensors directory, which loads about forty times faster."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from specdec_kernels.cache.locks import locked
from specdec_kernels.cache.manifest import intact, seal
from specdec_kernels.cache.places import CacheError, cache_root, cannot_write, ready
from specdec_kernels.cache.scratch import scratch, sweep

from specdec.errors import TargetError
from specdec.model.load.locate import quiet_transformers

logger = logging.getLogger(__name__)
LIMIT = 1800.0  # seconds to wait for another process's conversion
SAMPLE = 1 << 20  # bytes hashed at each end: a GGUF starts with its metadata


def conversion_key(path: Path) -> str:
    """A name for the converted copy: size, modification time, and both ends of the file."""
    stat = path.stat()
    digest = hashlib.sha256(f"{stat.st_size}:{stat.st_mtime_ns}".encode())
    with path.open("rb") as file:
        digest.update(file.read(SAMPLE))
        file.seek(max(0, stat.st_size - SAMPLE))
        digest.update(file.read(SAMPLE))
    return digest.hexdigest()[:16]


def converted_directory(path: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """The safetensors directory of a .gguf file, made on first use and again when it is damaged.

    Weights are stored in ``dtype``: float32 for an exact copy of the dequantised values. Raises ``TargetError``.
    """
    try:
        folder = ready(cache_root() / "gguf")
        sweep(folder)
        final = folder / f"{path.stem}-{str(dtype).removeprefix('torch.')}-{conversion_key(path)}"
        if intact(final):
            return final
        with locked(folder, LIMIT, lambda: logger.warning("waiting for another process that converts a model")):
            if not intact(final):  # otherwise another process was faster
                _make(path, final, dtype)
        return final
    except CacheError as error:
        raise TargetError(f"{path.name} needs a converted copy: {error}") from error


def _make(path: Path, final: Path, dtype: torch.dtype) -> None:
    if final.exists():
        logger.warning("the converted copy %s is damaged, not yours, or of an older release; converting again", final)
    else:
        logger.warning("converting %s once into %s", path.name, final)
    with scratch(final.parent) as work:
        made = work / "new"
        model, tokenizer = _read(path, dtype)
        try:
            made.mkdir(mode=0o700)
            _store(model, tokenizer, made)
            if final.exists():
                os.replace(final, work / "old")
            os.replace(made, final)
        except OSError as error:
            raise cannot_write(final.parent, error) from error


def _read(path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model and the tokenizer of a .gguf file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specdec.model.load.gguf_reader import fast_gguf

    try:
        # the advice about packed weights does not apply: they are stored dense
        with quiet_transformers(), fast_gguf():
            source = {"gguf_file": path.name, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), **source)
            return AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=dtype, **source), tokenizer
    except BaseException as error:
        # the tokenizer library reports some damage as a panic, which is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TargetError(f"cannot read {path} as a GGUF checkpoint: {error}") from error
        raise


def _store(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save both; raises ``OSError`` where they do not fit."""
    size, free = sum(p.numel() * p.element_size() for p in model.parameters()), shutil.disk_usage(folder).free
    if size > free:
        raise OSError(errno.ENOSPC, f"{size / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free")
    # dense now: without these three lines transformers refuses to save what came from a GGUF
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    try:
        with quiet_transformers():
            model.save_pretrained(folder, safe_serialization=True)
            tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # the writers of weights and tokenizers are not Python's and have errors of their own
        full = "No space left" in str(error) or "os error 28" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
    for stored in folder.iterdir():
        stored.chmod(0o600)
    seal(folder)
