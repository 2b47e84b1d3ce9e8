"""What a configuration means for the engine: settings, the speculative part, the verifier."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from specdec.config.speculative import SpeculativeConfig
from specdec.engine.controller import DraftController
from specdec.verify.verifier import Verifier

TARGET_SETTINGS = ("model", "dtype", "max_model_len")
ENGINE_SETTINGS = ("device", "max_num_seqs", "max_num_batched_tokens", "seed", "compile")


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


# verification mode -> its argument <- the option that holds it
MODE_OPTIONS = {
    "synthetic": {"rates": "synthetic_acceptance_rates", "length": "synthetic_acceptance_length"},
    "fly": {
        "window": "fly_window_size",
        "entropy_threshold": "fly_entropy_threshold",
        "entropy_top_k": "fly_entropy_top_k",
    },
}


def build_verifier(config: SpeculativeConfig | None) -> Verifier:
    """The verifier a configuration asks for; plain sampling without one."""
    if config is None:
        return Verifier()
    mode = config.get("verification.rejection_sample_method") or "standard"
    options = {name: config.get(f"options.{option}") for name, option in MODE_OPTIONS.get(mode, {}).items()}
    given = {name: value for name, value in options.items() if value is not None}
    if "length" in given:
        given["k"] = config.num_speculative_tokens
    return Verifier(mode, **given)


def build_controller(max_drafts: int) -> DraftController:
    """Decides per request how many drafts to ask for, so that drafting that does not pay switches itself off.

    Sampled requests decide by nominal costs: their tokens depend on how many were drafted, and equal seeds must give
    equal outputs.
    """
    return DraftController(max_drafts, is_reproducible=lambda request: request.params.temperature > 0)
