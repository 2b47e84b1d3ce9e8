"""Hidden states of a target on disk, one file a sample, in the layouts that draft trainers read.

A file appears whole or not at all: it is written beside its place, synced and renamed. What a killed process leaves is
at most one ``.part`` file, which the next one removes. Layouts, from the loaders of both projects:

* ``speculators``: ``hidden_states/hs_{i}.safetensors`` with ``token_ids`` [S] and ``hidden_states`` [S, A, H]; the last
  of the A states is the output of the last layer before the final norm. Beside them a data set of the same samples.
* ``specforge``: ``rows_{a}-{b}/data_{i}.ckpt``, a torch file of tensors only, with ``input_ids``, ``loss_mask``,
  ``aux_hidden_state`` [1, S, A * H] and ``hidden_state`` [1, S, H], which is the state after the final norm.

``manifest.json`` says what the states are; ``samples.jsonl`` lists index, file, ``input_ids``, ``loss_mask`` and ``seq_len``.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from specdec.errors import EngineError
from specdec.model.atomic_files import append_line, publish, remove_parts

MANIFEST, SAMPLES = "manifest.json", "samples.jsonl"
VERSION = 1
_GROUP = 5000  # samples of one folder of the specforge layout
_INDEX = re.compile(r"_(\d+)$")


class StateShardError(EngineError):
    """The folder cannot take these states; the message names the file."""


@dataclass(frozen=True)
class Sample:
    """One finished sequence: S tokens, which of them a trainer learns from, and the states behind them."""

    token_ids: list[int]
    loss_mask: list[int]  # [S] 1 = a trainer learns to draft this token
    states: torch.Tensor  # [S, A, H] at the boundaries, in their order
    last: torch.Tensor | None = None  # [S, H] after the final norm

    @property
    def is_finite(self) -> bool:
        """Whether a trainer could learn from the states; its loader refuses others."""
        return all(bool(torch.isfinite(t).all()) for t in (self.states, self.last) if t is not None)


@dataclass(frozen=True)
class Layout:
    """Where a sample lies and what its file holds."""

    path: Callable[[int], str]
    encode: Callable[[Sample], bytes]
    decode: Callable[[Path], tuple[list[int], list[int]]]  # token ids and loss mask of a file
    needs_last: bool = False  # the state after the final norm is stored, not the last layer's output


def _encode_safetensors(sample: Sample) -> bytes:
    ids, mask = (torch.tensor(v, dtype=torch.int64) for v in (sample.token_ids, sample.loss_mask))
    return safetensors_bytes({"token_ids": ids, "hidden_states": sample.states.contiguous(), "loss_mask": mask})


def _decode_safetensors(path: Path) -> tuple[list[int], list[int]]:
    with safe_open(path, "pt") as file:
        return file.get_tensor("token_ids").tolist(), file.get_tensor("loss_mask").tolist()


def _encode_torch(sample: Sample) -> bytes:
    import io

    assert sample.last is not None
    ids, mask = (torch.tensor(v, dtype=torch.int64) for v in (sample.token_ids, sample.loss_mask))
    held = {"input_ids": ids, "loss_mask": mask, "hidden_state": sample.last[None].contiguous()}
    buffer = io.BytesIO()
    torch.save({**held, "aux_hidden_state": sample.states.flatten(1)[None].contiguous()}, buffer)
    return buffer.getvalue()


def _decode_torch(path: Path) -> tuple[list[int], list[int]]:
    held = torch.load(path, weights_only=True, mmap=True)
    return held["input_ids"].tolist(), held["loss_mask"].tolist()


def _grouped(index: int) -> str:
    first = index // _GROUP * _GROUP
    return f"rows_{first}-{first + _GROUP}/data_{index}.ckpt"


LAYOUTS: Mapping[str, Layout] = {
    "speculators": Layout(lambda i: f"hidden_states/hs_{i}.safetensors", _encode_safetensors, _decode_safetensors),
    "specforge": Layout(_grouped, _encode_torch, _decode_torch, needs_last=True),
}


class StateFolder:
    """A folder of samples that grows, also over several runs.

    Args:
        facts: what the states are (target, boundaries, dtype ...); a folder holds states of equal facts only.

    Raises ``StateShardError`` for a folder that holds something else or cannot be written.
    """

    def __init__(self, folder: Path, layout: str, facts: Mapping[str, Any]) -> None:
        self.folder, self.layout = folder, LAYOUTS[layout]
        self.facts = {"version": VERSION, "layout": layout, **facts}
        self.done: dict[int, str] = {}  # index -> file, complete
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("w")
            self._claim()
            remove_parts(folder)
            self._check_manifest()
            self._find_samples()
        except OSError as error:
            raise StateShardError(f"{error.filename or folder} cannot be used: {error.strerror or error}") from error

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with the process, however it ends
        except BlockingIOError as error:
            raise StateShardError(
                f"{self.folder} is being written by another run; wait for it or choose another"
            ) from error

    def close(self) -> None:
        """Let other runs write here."""
        self._lock.close()

    @property
    def next_index(self) -> int:
        """The first index behind all that exist."""
        return max(self.done, default=-1) + 1

    def write(self, index: int, sample: Sample) -> Path:
        """Store a sample; it is on the disk when this returns. Raises ``StateShardError``."""
        name = self.layout.path(index)
        try:
            publish(self.folder / name, self.layout.encode(sample))
            self.done[index] = name
            append_line(self.folder / SAMPLES, self._line(index, sample.token_ids, sample.loss_mask))
        except OSError as error:
            raise StateShardError(f"{self.folder / name} cannot be written: {error.strerror or error}") from error
        return self.folder / name

    def token_ids(self, index: int) -> list[int]:
        """The tokens of a stored sample."""
        return self._read(self.done[index])[0]

    def _read(self, name: str) -> tuple[list[int], list[int]]:
        try:
            return self.layout.decode(self.folder / name)
        except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
            raise StateShardError(
                f"{self.folder / name} cannot be read: {error}; remove it to make it again"
            ) from error

    def _check_manifest(self) -> None:
        path = self.folder / MANIFEST
        if not path.exists():
            publish(path, (json.dumps(self.facts, indent=1) + "\n").encode())
            return
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StateShardError(f"{path} is not JSON: {error}") from error
        held = held if isinstance(held, dict) else {}
        names = [name for name in {**self.facts, **held} if held.get(name) != self.facts.get(name)]
        if names:
            name = names[0]
            raise StateShardError(
                f"{path}: this folder holds states of another kind: {name} is {held.get(name)!r} there and "
                f"{self.facts.get(name)!r} now; choose another folder"
            )

    def _find_samples(self) -> None:
        """Complete files, and a list that names each of them once, whatever a killed run left."""
        files = (p for p in self.folder.rglob("*_*") if p.suffix and _INDEX.search(p.stem))
        names = {int(_INDEX.search(p.stem)[1]): p.relative_to(self.folder).as_posix() for p in files}  # type: ignore[index]
        self.done = {i: name for i, name in sorted(names.items()) if name == self.layout.path(i)}
        path, listed = self.folder / SAMPLES, {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            try:
                listed[json.loads(line)["index"]] = line
            except (ValueError, KeyError, TypeError):
                continue  # a line that was cut off; its sample is read again below
        lines = [listed.get(i) or self._line(i, *self._read(name)) for i, name in self.done.items()]
        new = "".join(f"{line}\n" for line in lines)
        if new != text:
            publish(path, new.encode())

    def _line(self, index: int, token_ids: Sequence[int], loss_mask: Sequence[int]) -> str:
        held = {"index": index, "file": self.layout.path(index), "seq_len": len(token_ids)}
        return json.dumps({**held, "input_ids": list(token_ids), "loss_mask": list(loss_mask)}, separators=(",", ":"))
