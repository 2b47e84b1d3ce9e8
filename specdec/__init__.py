"""Declarative configuration for speculative decoding, and the runtime it drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module; loaded on first use, so that `import specdec` stays light and torch-free
_EXPORTS = {
    "resolve": "specdec.config.resolve",
    "register_speculator": "specdec.config.registry",
    "SpeculativeConfig": "specdec.config.speculative",
    "Resolution": "specdec.config.speculative",
    "ConfigError": "specdec.config.diagnostics",
    "Diagnostic": "specdec.config.diagnostics",
    "Origin": "specdec.config.diagnostics",
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
    from specdec.config.diagnostics import ConfigError, Diagnostic, Origin
    from specdec.config.registry import register_speculator
    from specdec.config.resolve import resolve
    from specdec.config.speculative import Resolution, SpeculativeConfig
    from specdec.engine.llm import LLM
    from specdec.engine.sampling.sampling_params import SamplingParams


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
