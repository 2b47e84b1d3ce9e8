"""What a configuration means for the engine: settings, the speculative part, the verifier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from specdec.config.speculative import SpeculativeConfig
from specdec.verify.verifier import Verifier

TARGET_SETTINGS = ("model", "dtype", "max_model_len")
ENGINE_SETTINGS = ("device", "max_num_seqs", "max_num_batched_tokens", "seed")


def resolve_speculative(
    model: Any, given: Any, settings: Mapping[str, Any]
) -> tuple[SpeculativeConfig | None, dict[str, Any]]:
    """The finalized configuration (None = plain decoding) and the settings in force.

    ``given``: None, a ``speculative:`` block, a path, or a finalized config. Explicit ``settings`` (not None) take
    part in resolving; a finalized config supplies those that were not given.
    """
    explicit = {name: value for name, value in settings.items() if value is not None}
    if given is None:
        return None, explicit
    config = given if isinstance(given, SpeculativeConfig) else _resolve(model, given, explicit)
    inherited = {name: config.target.get(name) for name in TARGET_SETTINGS}
    inherited |= {name: config.engine.get(name) for name in ENGINE_SETTINGS}
    return config, {name: value for name, value in inherited.items() if value is not None} | explicit


def _resolve(model: Any, given: Any, explicit: Mapping[str, Any]) -> SpeculativeConfig:
    from specdec import resolve

    if isinstance(given, (str, os.PathLike)):
        overrides = [f"target.{n}={explicit[n]}" for n in TARGET_SETTINGS if n in explicit]
        overrides += [f"engine.{n}={explicit[n]}" for n in ENGINE_SETTINGS if n in explicit]
        if isinstance(model, (str, os.PathLike)):
            overrides.append(f"target.model={os.fspath(model)!r}")
        return resolve(os.fspath(given), overrides=overrides).unwrap()
    document: dict[str, Any] = {
        "target": {n: explicit[n] for n in TARGET_SETTINGS if n in explicit},
        "speculative": dict(given),
        "engine": {n: explicit[n] for n in ENGINE_SETTINGS if n in explicit},
    }
    extra: dict[str, Any] = {}
    if isinstance(model, (str, os.PathLike)):
        document["target"]["model"] = os.fspath(model)
    elif model is not None:
        extra["target_config"] = model.config.to_dict()
    return resolve(document, **extra).unwrap()


def build_verifier(config: SpeculativeConfig | None) -> Verifier:
    """The verifier a configuration asks for; plain sampling without one."""
    if config is None:
        return Verifier()
    return Verifier(config.verification.get("rejection_sample_method") or "standard")
