"""Reads the tensors of a draft checkpoint: each once, straight into its place, and none left over unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from specdec.config.checkpoint.facts.tensor_names import normalised_name
from specdec.config.checkpoint.files.read import load_checkpoint
from specdec.config.checkpoint.files.safetensors_header import TensorEntry
from specdec.drafts.errors import DraftError

Rename = Callable[[str], str | None]
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class Weights:
    """The tensors of one safetensors checkpoint, by the names that a network gives them.

    ``rename`` maps a stored name to the network's, or to None for a tensor of somebody else (the base model of a
    merged checkpoint); the default reads ``model.`` and ``midlayer.`` as every trainer means them. Only headers are
    read at first. ``dtype`` and ``device`` are those of floating tensors that are taken.

    Raises ``DraftError`` for a checkpoint that is absent, unreadable, pickled or without weights.
    """

    def __init__(
        self,
        location: str,
        *,
        revision: str | None = None,
        rename: Rename = normalised_name,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.location, self.dtype, self.device = location, dtype, device or torch.device("cpu")
        checkpoint, findings = load_checkpoint(location, role="draft", revision=revision)
        for finding in findings:
            if checkpoint is None or finding.severity == "error":
                raise DraftError(f"{finding.message}; {finding.fix}" if finding.fix else finding.message)
        assert checkpoint is not None
        if not checkpoint.entries:
            raise DraftError(f"{checkpoint.location} holds no safetensors weights, so there is nothing to draft with")
        self._entries: dict[str, tuple[str, TensorEntry]] = {}
        self._taken: set[str] = set()
        for stored, entry in checkpoint.entries.items():
            if (name := rename(stored)) is None:
                continue
            if name in self._entries:
                other = self._entries[name][0]
                raise DraftError(f"{location}: the tensors {other} and {stored} are both read as {name}; remove one")
            self._entries[name] = (stored, entry)

    @property
    def folder(self) -> Path | None:
        """Where the checkpoint's files lie; None without any."""
        return next((entry.file.parent for _, entry in self._entries.values()), None)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Its shape. Raises ``DraftError`` when there is no such tensor."""
        return self._entry(name)[1].shape

    def take(self, name: str, shape: Iterable[int] | None = None) -> torch.Tensor:
        """The tensor, read from its file; floating ones in ``dtype`` on ``device``.

        Raises ``DraftError`` when it is missing, has another shape than ``shape``, cannot be read, or is quantized.
        """
        stored, entry = self._entry(name)
        if shape is not None and tuple(shape) != entry.shape:
            raise DraftError(
                f"{entry.file}: tensor {stored} has shape {list(entry.shape)}, but the configuration of the draft "
                f"needs {list(shape)}; use the config.json that was saved with these weights"
            )
        self._taken.add(name)
        tensor = _read(stored, entry)
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def fill(self, module: nn.Module, prefix: str = "") -> None:
        """Take every parameter of a module (built on the meta device) by its name; shared modules are not its own.

        A parameter that is already real is left alone. Raises ``DraftError`` as ``take`` does.
        """
        missing = [n for n, p in module.named_parameters() if p.is_meta and prefix + n not in self]
        if missing:
            raise DraftError(self._missing(prefix + missing[0], len(missing) - 1))
        for name, parameter in list(module.named_parameters()):
            if parameter.is_meta:
                owner, _, leaf = name.rpartition(".")
                value = nn.Parameter(self.take(prefix + name, parameter.shape), requires_grad=False)
                setattr(module.get_submodule(owner), leaf, value)

    def ignore(self, *names: str) -> None:
        """These tensors may be there and are not needed."""
        self._taken.update(names)

    def rest(self) -> list[str]:
        """Stored names of tensors that nobody took, in order of the files."""
        return [stored for name, (stored, _) in self._entries.items() if name not in self._taken]

    def finish(self) -> None:
        """Raises ``DraftError`` when tensors are left: a network that ignores weights is not the one that was trained."""
        if left := self.rest():
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise DraftError(
                f"{self.location}: tensor {left[0]}{more} has no place in this draft network; "
                "check that speculative.method and the config.json are those of this checkpoint"
            )

    def _entry(self, name: str) -> tuple[str, TensorEntry]:
        if name not in self._entries:
            raise DraftError(self._missing(name))
        return self._entries[name]

    def _missing(self, name: str, others: int = 0) -> str:
        more = f" and {others} more that the draft needs" if others else ", which the draft needs"
        return f"{self.location} has no tensor {name}{more}; use the checkpoint as it was trained"


def _read(name: str, entry: TensorEntry) -> torch.Tensor:
    """One tensor read into memory of its own: no second copy, and no file that must outlive the load."""
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        raise DraftError(
            f"{entry.file}: tensor {name} is stored as {entry.dtype}; quantized drafts are not run here, "
            "use the checkpoint in bfloat16"
        )
    tensor = torch.empty(entry.shape, dtype=dtype)
    if not tensor.numel():
        return tensor
    buffer: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    try:
        with entry.file.open("rb", buffering=0) as file:
            file.seek(entry.begin)
            done = 0
            while done < len(buffer):  # one call reads at most 2 GiB
                count = file.readinto(buffer[done:])
                if not count:
                    raise DraftError(f"{entry.file} ends inside tensor {name}; the file is truncated")
                done += count
    except OSError as error:
        raise DraftError(f"{entry.file} cannot be read: {error.strerror or error}") from error
    return tensor
