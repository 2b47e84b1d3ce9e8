"""Finds and opens a checkpoint: a directory, a config.json, safetensors files, a GGUF file, or a cached hub repository."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from specdec.config.checkpoint.files.bounds import MAX_TENSORS, MAX_VALUES, bounded, regular_file
from specdec.config.checkpoint.files.errors import CheckpointFault, lfs_pointer
from specdec.config.checkpoint.files.gguf_config import checkpoint_from_gguf
from specdec.config.checkpoint.files.hub_cache import cached_snapshot, looks_like_hub_id
from specdec.config.checkpoint.files.packaged import PACKAGED, packaged_file
from specdec.config.checkpoint.files.safetensors_header import TensorEntry, read_header, read_integers
from specdec.config.checkpoint.files.tokenizer import TokenizerInfo, read_tokenizer
from specdec.config.checkpoint.files.value import Checkpoint, Role
from specdec.config.findings.diagnostics import Diagnostic, Severity

CONFIG_FILE = "config.json"
INDEX_SUFFIX = ".safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_CONFIG_BYTES = 16_000_000
OPTION_PATHS = {"draft": "speculative.model", "target": "target.model"}


def load_checkpoint(
    location: str | Path, *, role: Role, revision: str | None = None
) -> tuple[Checkpoint | None, list[Diagnostic]]:
    """The checkpoint at ``location``, or None with the finding that says why. Never uses the network, never raises.

    ``revision`` is a branch, tag or commit of a hub repository; it does not apply to local paths.
    """
    at = OPTION_PATHS[role]
    try:
        path = _local_path(location, revision or "main")
        if path is None:
            note = (
                f"{location} is not a local path and not in the local cache, so nothing in it was checked"
                if looks_like_hub_id(str(location))
                else f"{location} does not exist"
            )
            if (model := PACKAGED.get(str(location))) is not None:
                note = f"{location} ships in a package that is not installed, so nothing in it was checked"
                return None, [Diagnostic("checkpoint-not-cached", "note", at, note, fix=model.command)]
            severity: Severity = "note" if looks_like_hub_id(str(location)) else "error"
            code = "checkpoint-not-cached" if severity == "note" else "checkpoint-not-found"
            return None, [Diagnostic(code, severity, at, note, fix=f"check {at}, or download the checkpoint first")]
        return _open(path, role)
    except CheckpointFault as fault:
        return None, [Diagnostic(fault.code, "error", at, str(fault), fix=fault.fix)]


def _local_path(location: str | Path, revision: str) -> Path | None:
    try:
        path = Path(location).expanduser()
        if path.exists():
            return path
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte or half a character, or the home of nobody
        return None
    if packaged := packaged_file(str(location)):
        return packaged
    return cached_snapshot(str(location), revision) if looks_like_hub_id(str(location)) else None


def _open(path: Path, role: Role) -> tuple[Checkpoint, list[Diagnostic]]:
    if path.is_dir():
        return _open_directory(path, role, sorted(path.glob("*.safetensors")))
    if path.suffix == ".gguf":
        return checkpoint_from_gguf(path, role), []
    if path.name.endswith(INDEX_SUFFIX):
        return _open_directory(path.parent, role, _index_files(path))
    if path.suffix == ".safetensors":
        return _open_directory(path.parent, role, [path])
    if path.suffix == ".json":
        return _from_files(read_json_object(path), path.parent, role, []), []
    if path.suffix in PICKLE_SUFFIXES:
        raise _pickle_fault([path])
    raise CheckpointFault(
        f"{path.name} is not a checkpoint that can be read",
        fix=f"give a directory with {CONFIG_FILE} and *.safetensors, or a .gguf file",
    )


def _open_directory(directory: Path, role: Role, files: list[Path]) -> tuple[Checkpoint, list[Diagnostic]]:
    config_path = directory / CONFIG_FILE
    index = sorted(directory.glob(f"*{INDEX_SUFFIX}"))
    if index and (not files or {f.name for f in files} & _index_names(index[0])):
        files = _index_files(index[0])
    if not config_path.is_file():
        gguf = sorted(directory.glob("*.gguf"))
        if len(gguf) == 1:
            return checkpoint_from_gguf(gguf[0], role), []
        if gguf:
            raise CheckpointFault(f"{directory} holds {len(gguf)} .gguf files", fix=f"name one, for example {gguf[0]}")
        raise CheckpointFault(f"{directory} has no {CONFIG_FILE}", code="checkpoint-without-config")
    config = read_json_object(config_path)
    findings = []
    if not files:
        pickles = [p for p in sorted(directory.iterdir()) if p.suffix in PICKLE_SUFFIXES]
        if pickles:
            raise _pickle_fault(pickles)
        note = f"{directory} has no weights, so tensor names and shapes were not checked"
        findings.append(Diagnostic("checkpoint-without-weights", "note", OPTION_PATHS[role], note))
    return _from_files(config, directory, role, files), findings


def _index_names(index: Path) -> set[str]:
    mapping = read_json_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
        raise CheckpointFault(f"{index.name} has no weight_map from tensor names to file names")
    return set(mapping.values())


def _index_files(index: Path) -> list[Path]:
    names = sorted(_index_names(index))
    inside = [n for n in names if Path(n).name == n]
    if inside != names:
        raise CheckpointFault(
            f"{index.name} names files outside its directory: {sorted(set(names) - set(inside))[0]!r}"
        )
    missing = [n for n in names if not (index.parent / n).is_file()]
    if missing:
        raise CheckpointFault(
            f"{index.name} names {len(names)} files, {len(missing)} are missing: {', '.join(missing[:3])}",
            fix="download the missing files",
        )
    return [index.parent / n for n in names]


def _from_files(config: dict[str, Any], directory: Path, role: Role, files: Iterable[Path]) -> Checkpoint:
    entries: dict[str, TensorEntry] = {}
    for file in files:
        for name, entry in read_header(file).items():
            if name in entries:
                raise CheckpointFault(f"tensor {name!r} is stored twice, in {entries[name].file.name} and {file.name}")
            entries[name] = entry
    return Checkpoint(
        config=config,
        tensors={n: e.shape for n, e in entries.items()} if entries else None,
        role=role,
        tensor_dtypes={n: e.dtype for n, e in entries.items()},
        location=str(directory),
        weight_bytes=sum(e.end - e.begin for e in entries.values()) if entries else None,
        file_format="safetensors" if entries else "config",
        read_tokenizer=_tokenizer_of(directory),
        read_map=lambda name: read_integers(entries[name]) if name in entries else None,
        entries=entries,
    )


def _tokenizer_of(directory: Path) -> Callable[[], TokenizerInfo | None]:
    return lambda: read_tokenizer(directory)


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object. Raises CheckpointFault with line and column when it is not."""
    regular_file(path)
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES * (4 if path.name.endswith(INDEX_SUFFIX) else 1):
            raise CheckpointFault(f"{path.name} is {path.stat().st_size} bytes long, too large for a configuration")
        text = path.read_text(encoding="utf-8")
        fault = lfs_pointer(path.name, text[:100].encode())
        value = {} if fault else json.loads(text)
    except OSError as error:
        raise CheckpointFault(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointFault(f"{path} is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise CheckpointFault(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointFault(f"{path}: not valid JSON: {error}") from error
    if fault:
        raise fault
    if not isinstance(value, dict):
        raise CheckpointFault(f"{path} holds a JSON {type(value).__name__}, expected an object")
    bounded(value, str(path), MAX_TENSORS if path.name.endswith(INDEX_SUFFIX) else MAX_VALUES)
    return value


def _pickle_fault(files: list[Path]) -> CheckpointFault:
    return CheckpointFault(
        f"{files[0].name} is a pickle, which can run code when it is loaded; only safetensors and GGUF weights are read",
        code="pickle-weights",
        fix='convert it on a machine you trust: python -c "import torch, safetensors.torch as s; '
        f"s.save_file({{k: v.contiguous().clone() for k, v in torch.load('{files[0].name}', weights_only=True).items()}}, 'model.safetensors')\"",
    )
