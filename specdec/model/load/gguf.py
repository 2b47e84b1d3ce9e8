"""GGUF targets: converted once into a safetensors directory, which loads about forty times faster."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

import torch

from specdec.errors import TargetError
from specdec.model.load.locate import cache_root, quiet_transformers

logger = logging.getLogger(__name__)
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
    """The safetensors directory of a .gguf file, made on first use.

    Weights are stored in ``dtype``: float32 for an exact copy of the dequantised values.
    """
    name = f"{path.stem}-{str(dtype).removeprefix('torch.')}-{conversion_key(path)}"
    final = cache_root() / "gguf" / name
    if (final / "config.json").exists():
        return final
    logger.warning("converting %s once into %s", path.name, final)
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=final.parent))
    try:
        _convert(path, scratch, dtype)
        try:
            os.replace(scratch, final)
        except OSError:
            if not (final / "config.json").exists():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def _convert(path: Path, out: Path, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from specdec.model.load.gguf_reader import fast_gguf

    try:
        # the advice about packed weights does not apply: they are stored dense
        with quiet_transformers(), fast_gguf():
            source = {"gguf_file": path.name, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), **source)
            model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=dtype, **source)
            # dense now: without these three lines transformers refuses to save what came from a GGUF
            model.hf_quantizer = None
            model.is_quantized = False
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(out, safe_serialization=True)
            tokenizer.save_pretrained(out)
    except BaseException as error:
        # the tokenizer library reports some damage as a panic, which is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TargetError(f"cannot read {path} as a GGUF checkpoint: {error}") from error
        raise
