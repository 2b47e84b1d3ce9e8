"""The finalized configuration: what will run, why, and what it owes the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.findings.diagnostics import ConfigError, Diagnostic, Origin
from specdec.config.language.namespace import Namespace, plain
from specdec.config.language.record import SpeculatorRecord


@dataclass(frozen=True)
class SpeculativeConfig:
    """What will run. Frozen; every value's origin stands in ``provenance``."""

    method: str
    record: SpeculatorRecord
    num_speculative_tokens: int
    options: (
        Any  # the record's typed, frozen model: every option, merged and validated; read by attribute or as a mapping
    )
    draft: Namespace  # facts and settings of the draft: model, dtype, quantization, kv_cache_dtype, max_model_len, rope_type, ...
    target: Namespace  # facts and settings of the target
    engine: Namespace  # engine settings after speculation changed them
    sampling: Namespace  # default sampling parameters of the file
    wiring: Namespace  # capture_before_layer (boundary ids), lm_head, embed_tokens, draft_to_target, step_to_layer, vocab_mode
    verification: Namespace  # rejection_sample_method, draft_sample_method, guarantee (lossless | lossy), ...
    numbers: Namespace  # num_lookahead_tokens, max_num_draft_seqs, ... derived by the record
    resources: Namespace  # bytes: draft_weight_bytes, draft_kv_bytes_per_token, draft_logits_bytes, kv_tokens, ...
    changes: tuple[Mapping[str, Any], ...] = ()  # what speculation changes in the engine: {path, before, after, why}
    warnings: tuple[Diagnostic, ...] = field(default=(), compare=False)
    provenance: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    hash_factors: tuple[Any, ...] = ()
    config_hash: str = ""
    source: Mapping[str, Any] = field(
        default_factory=dict
    )  # the canonical user configuration that resolves to this value
    members: tuple[SpeculativeConfig, ...] = ()  # of a chain, in order of priority

    @property
    def capabilities(self) -> Mapping[str, bool]:
        """The record's capability flags, after rules that depend on the checkpoint."""
        return {name: self.numbers.get(name, value) for name, value in self.record.capabilities.items()}

    def __getattr__(self, name: str) -> Any:
        # Derived numbers and capability flags read as plain attributes: config.num_lookahead_tokens
        if name.startswith("__"):
            raise AttributeError(name)
        for group in (self.__dict__.get("numbers"), getattr(self.__dict__.get("record"), "capabilities", None)):
            if group is not None and name in group:
                return group[name]
        raise AttributeError(f"SpeculativeConfig has no {name!r}")

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a dotted path: ``draft.rope_type``, ``options.prompt_lookup_max``, ``num_lookahead_tokens``."""
        value: Any = self
        for part in path.split("."):
            try:
                value = value[part] if isinstance(value, Mapping) else getattr(value, part)
            except (KeyError, AttributeError):
                return default
        return value


@dataclass(frozen=True)
class Resolution:
    """The outcome of ``resolve``: a config or errors, and always every finding."""

    config: SpeculativeConfig | None
    diagnostics: tuple[Diagnostic, ...]
    provenance: Mapping[str, Origin] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self.diagnostics if d.severity == "warning")

    def unwrap(self) -> SpeculativeConfig:
        """The config; raises ``ConfigError`` with all diagnostics when there are errors."""
        if self.config is None:
            raise ConfigError(self.diagnostics)
        return self.config


__all__ = ["Namespace", "Resolution", "SpeculativeConfig", "plain"]
