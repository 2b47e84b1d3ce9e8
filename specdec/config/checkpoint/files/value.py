"""A checkpoint as the configuration sees it: its raw config, and the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.safetensors_header import TensorEntry
from specdec.config.checkpoint.files.tokenizer import TokenizerInfo, tokenizer_from_list

Role = Literal["draft", "target"]
Shape = tuple[int, ...]
# A caller without files may put these next to the config keys; they are the contents of other files of a checkpoint.
INLINE_KEYS = ("d2t", "t2d", "tokens")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. ``tensors`` is None when only the config is known; ``location`` never decides anything."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Shape] | None = None
    role: Role = "draft"
    tensor_dtypes: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    inline: Mapping[str, Any] = field(default_factory=dict)
    weight_bytes: int | None = None
    file_format: str = "config"  # config | safetensors | gguf
    read_tokenizer: Callable[[], TokenizerInfo | None] | None = field(default=None, compare=False, repr=False)
    read_map: Callable[[str], tuple[int, ...] | None] | None = field(default=None, compare=False, repr=False)
    entries: Mapping[str, TensorEntry] = field(
        default_factory=dict, compare=False, repr=False
    )  # where each tensor lies

    @classmethod
    def from_parts(
        cls, config: Mapping[str, Any], tensors: Mapping[str, Sequence[int]] | None = None, role: Role = "draft"
    ) -> Checkpoint:
        """From the contents of ``config.json`` and tensor name -> shape; ``d2t``, ``t2d`` and ``tokens`` may stand inline."""
        inline = {k: config[k] for k in INLINE_KEYS if isinstance(config.get(k), (list, tuple))}
        return cls(
            config={k: v for k, v in config.items() if k not in inline},
            tensors=None if tensors is None else {k: tuple(v) for k, v in tensors.items()},
            role=role,
            inline=inline,
        )

    def with_config(self, config: Mapping[str, Any]) -> Checkpoint:
        """The same files under a rewritten config."""
        return replace(self, config=config)

    @cached_property
    def tokenizer(self) -> TokenizerInfo | None:
        """The tokenizer that ships with the checkpoint, or None. Raises CheckpointFault when its file is damaged."""
        tokens = self.inline.get("tokens")
        if isinstance(tokens, (list, tuple)):
            return tokenizer_from_list(tokens, "tokens")
        return self.read_tokenizer() if self.read_tokenizer else None

    def vocab_map(self, name: str) -> tuple[int, ...] | None:
        """The stored values of ``d2t`` or ``t2d`` (or another small integer tensor), or None. Raises CheckpointFault."""
        values = self.inline.get(name)
        if isinstance(values, (list, tuple)):
            if not all(isinstance(v, int) for v in values):
                raise CheckpointFault(f"{name} must be a list of integers")
            return tuple(int(v) for v in values)
        return self.read_map(name) if self.read_map else None

    @property
    def architectures(self) -> tuple[str, ...]:
        """What the config declares; empty when absent or not a list of strings."""
        value = self.config.get("architectures")
        return tuple(v for v in value if isinstance(v, str)) if isinstance(value, (list, tuple)) else ()

    @property
    def model_type(self) -> str:
        """What the config declares; empty when absent."""
        value = self.config.get("model_type")
        return value if isinstance(value, str) else ""
