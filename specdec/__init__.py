"""Declarative configuration for speculative decoding, and the runtime it drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module; loaded on first use, so that `import specdec` stays light and torch-free
_EXPORTS = {
    "resolve": "specdec.config.resolve.resolve",
    "register_speculator": "specdec.config.records.registry",
    "SpeculativeConfig": "specdec.config.final.speculative_config",
    "Resolution": "specdec.config.final.speculative_config",
    "ConfigError": "specdec.config.findings.diagnostics",
    "Diagnostic": "specdec.config.findings.diagnostics",
    "Origin": "specdec.config.findings.diagnostics",
    "LLM": "specdec.engine.llm",
    "SamplingParams": "specdec.engine.sampling.sampling_params",
}
__all__ = [
    "LLM",
    "ConfigError",
    "Diagnostic",
    "Origin",
    "Resolution",
    "SamplingParams",
    "SpeculativeConfig",
    "__version__",
    "register_speculator",
    "resolve",
]

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import Resolution, SpeculativeConfig
    from specdec.config.findings.diagnostics import ConfigError, Diagnostic, Origin
    from specdec.config.records.registry import register_speculator
    from specdec.config.resolve.resolve import resolve
    from specdec.engine.llm import LLM
    from specdec.engine.sampling.sampling_params import SamplingParams


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
