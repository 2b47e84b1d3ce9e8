"""What a configuration means for the engine: settings, the speculative part, the verifier."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from specdec.config.final.embedded_refusals import embedded_findings, plain_findings
from specdec.config.final.speculative_config import Resolution, SpeculativeConfig
from specdec.config.findings.render import render_text
from specdec.engine.policy.controller import DraftController
from specdec.engine.policy.step_costs import NominalCosts
from specdec.errors import EngineError
from specdec.model.target import Target
from specdec.verify.coupling import emits_own_draws
from specdec.verify.verifier import Verifier

logger = logging.getLogger(__name__)
TARGET_SETTINGS = ("model", "revision", "tokenizer", "dtype", "max_model_len")
ENGINE_SETTINGS = ("device", "max_num_seqs", "max_num_batched_tokens", "seed", "compile", "gpu_memory_utilization")


def resolve_speculative(
    model: Any, given: Any, settings: Mapping[str, Any], speculate: bool = True
) -> tuple[SpeculativeConfig | None, dict[str, Any]]:
    """The finalized configuration (None = plain decoding) and the settings in force.

    Without ``speculate`` the configuration only gives the settings.

    ``given``: None, a ``speculative:`` block, a path, a finalized config, or a resolution. Explicit ``settings`` (not None) take
    part in resolving. With a finalized config they add to it, but cannot exceed the limits it was resolved for.
    Raises ``EngineError`` for what the embedded engine cannot do, and logs what has no effect in it.
    """
    explicit = {name: value for name, value in settings.items() if value is not None}
    if "dtype" in explicit:
        explicit["dtype"] = str(explicit["dtype"]).removeprefix("torch.")
    if given is None:
        return None, explicit
    if isinstance(given, Resolution):
        given = given.unwrap()
    place = {"device": str(explicit["device"])} if "device" in explicit else {}
    kind = {name: value.partition(":")[0] for name, value in place.items()}  # a configuration does not number devices
    config = given if isinstance(given, SpeculativeConfig) else _resolve(model, given, explicit | kind)
    check(config, speculate)
    found = {name: config.target.get(name) for name in TARGET_SETTINGS}
    found |= {name: config.engine.get(name) for name in ENGINE_SETTINGS}
    # speculation may have lowered these
    found["max_model_len"] = config.engine.get("max_model_len") or found["max_model_len"]
    found["max_num_seqs"] = config.engine.get("max_num_active_seqs") or found["max_num_seqs"]
    if config is given:
        for name in ("max_model_len", "max_num_seqs"):
            if found[name] is not None and explicit.get(name, 0) > found[name]:
                raise EngineError(
                    f"{name} is {explicit[name]}, but the configuration was finalized for {found[name]}; resolve it again"
                )
        found |= explicit
    found |= place
    return config if speculate else None, {name: value for name, value in found.items() if value is not None}


def check(config: SpeculativeConfig, speculate: bool = True) -> None:
    """Raise ``EngineError`` for what the embedded engine refuses of a configuration; log what it ignores."""
    findings = embedded_findings(config) if speculate else plain_findings(config)
    errors = [d for d in findings if d.severity == "error"]
    if errors:
        raise EngineError("; ".join(f"{d.message}; {d.fix}" for d in errors))
    if findings:
        logger.warning("%s", render_text(findings))


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
        "engine": {n: explicit[n] for n in ENGINE_SETTINGS if n in explicit},
    }
    if not isinstance(given, (Mapping, Sequence)):
        raise EngineError(
            f"speculative_config is {given!r}; allowed: the speculative: block (a dict, or a list for a chain), the path "
            "of a configuration file, or the result of specdec.resolve"
        )
    document["speculative"] = dict(given) if isinstance(given, Mapping) else list(given)
    extra: dict[str, Any] = {}
    if isinstance(model, (str, os.PathLike)):
        document["target"]["model"] = os.fspath(model)
    elif model is not None:
        extra["target_config"] = model.config.to_dict()
    return resolve(document, **extra).unwrap()


# verification mode -> its argument <- the value of ``config.verification`` that holds it
MODE_OPTIONS = {
    "synthetic": {"rates": "synthetic_acceptance_rates"},
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
    if emits_own_draws(config):
        return Verifier("coupled")
    mode = config.get("verification.rejection_sample_method") or "standard"
    options = {name: config.get(f"verification.{value}") for name, value in MODE_OPTIONS.get(mode, {}).items()}
    return Verifier(mode, **{name: value for name, value in options.items() if value is not None})


def build_controller(
    max_drafts: int, config: SpeculativeConfig, target: Target, always: bool = False
) -> DraftController | None:
    """Decides per request how many drafts to ask for and to verify; None where nothing is to decide.

    Drafting that does not pay switches itself off, unless ``always`` asks for all drafts. Where tokens depend on how many
    were drafted, sampled requests decide by nominal costs: equal seeds must give equal outputs. Adaptive verification
    serves the batch instead, which its configuration says.
    """
    throughput = bool(config.get("options.enable_adaptive_verification"))
    threshold = config.get("options.confidence_threshold") or 0.0
    if always and not throughput and not threshold:
        return None
    nominal, is_free = NominalCosts.of(config, target.device.type, target.weight_bytes), emits_own_draws(config)
    return DraftController(
        max_drafts,
        nominal=nominal,
        is_reproducible=lambda request: request.params.temperature > 0 and not is_free,
        throughput=throughput,
        threshold=threshold,
        always=always,
    )
