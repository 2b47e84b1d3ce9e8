"""A configuration as vLLM flags: ``--speculative-config`` and the flags of target and engine (tables of vLLM 0.33)."""

from __future__ import annotations

import re
from typing import Any

from specdec.config.export.common import (
    Exported,
    begin,
    chosen_options,
    finding,
    sampling_findings,
    section_flags,
    stated,
)
from specdec.config.export.encode import Flag, settings
from specdec.config.export.tables import tables
from specdec.config.export.values import unknown_value
from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.config.findings.diagnostics import Diagnostic

ENGINE = "vllm"
V1, V2 = "V1", "V2"
READ_FOR = "read for "  # followed by the architectures of drafts that read it
BRINGS_V1 = "read; only the V1 runner"  # vLLM falls back to its old runner for these
V1_ONLY, V2_ONLY = "read by the V1 runner", "read by the V2 runner"


def export(config: SpeculativeConfig, version: str | None = None) -> Exported:
    """vLLM's command and flags; errors name every option that vLLM would refuse or silently ignore."""
    result, runs = begin(ENGINE, config, version)
    if not runs:
        return result
    result.settings = speculative_config(config, result.diagnostics, version)
    flags, found = section_flags(ENGINE, config, version)
    result.flags = [*flags, Flag(tables()[ENGINE]["speculative"], result.settings)]
    result.document |= settings(result.flags)
    result.diagnostics += [*found, *sampling_findings(ENGINE, config)]
    return result


def speculative_config(
    config: SpeculativeConfig, found: list[Diagnostic], version: str | None = None
) -> dict[str, Any]:
    """The ``--speculative-config`` object; appends an error for each option that would have no effect."""
    entry = config.record.engines[ENGINE]
    block: dict[str, Any] = {"method": entry["method"]}
    model = config.options.get("model")
    if model is not None and stated(config, "speculative.model"):
        block["model"] = model
    block["num_speculative_tokens"] = config.num_speculative_tokens
    block.update(entry.get("options") or {})
    v1, v2 = _runners(config)
    for option, value in chosen_options(config):
        effect = option.engines.get(ENGINE, "read")
        path = f"speculative.{option.name}"
        if effect.startswith(("ignored", "refused")):
            if not stated(config, path):
                continue
            word, _, reason = effect.partition(":")
            verb = "silently ignores" if word == "ignored" else "refuses"
            message = f"vLLM {verb} {option.name} for {config.method}: {reason.strip() or word}"
            found.append(
                finding(
                    "export-no-effect",
                    "error",
                    path,
                    message,
                    f"remove {option.name}, or use the embedded engine",
                    config,
                )
            )
            continue
        if (wrong := unknown_value(ENGINE, option.name, value, version)) is not None:
            found.append(finding("export-no-effect", "error", path, f"{option.name}: {wrong[0]}", wrong[1], config))
            continue
        unknown = tables()[ENGINE]["refused_values"].get(option.name, {}).get(value) if isinstance(value, str) else None
        if unknown is not None:
            found.append(
                finding("export-no-effect", "error", path, f"{option.name}: {unknown}", "use another value", config)
            )
            continue
        own = [name for name in re.findall(r"\w+Model\b", effect) if effect.startswith(READ_FOR)]
        architecture = config.draft.get("architecture")
        if own and architecture and architecture not in own:
            message = f"vLLM refuses {option.name} for {architecture}; it is {effect.partition(';')[0]}"
            found.append(finding("export-no-effect", "error", path, message, f"remove {option.name}", config))
            continue
        if effect.startswith(V1_ONLY) and value != option.default and not v1:
            message = f"vLLM silently ignores {option.name} for {config.method}: its V2 runner, which runs this, never reads it"
            found.append(finding("export-no-effect", "error", path, message, f"remove {option.name}", config))
            continue
        block[option.name] = value
    if v1 and v2:
        message = f"only vLLM's V1 runner has {', '.join(v1)} and only its V2 runner has {', '.join(v2)}"
        found.append(finding("export-no-effect", "error", "speculative", message, "drop one side", config))
    return block


def _runners(config: SpeculativeConfig) -> tuple[list[str], list[str]]:
    """What only vLLM's V1 runner can do, and what only its V2 runner can; V2 runs a configuration without the former."""
    runner = config.record.engines[ENGINE].get("runner")
    v1 = [config.method] if runner == V1 else []
    v2 = [config.method] if runner == V2 else []
    for option, value in chosen_options(config):
        effect = option.engines.get(ENGINE, "read")
        if value != option.default:
            v1 += [option.name] if effect.startswith(BRINGS_V1) else []
            v2 += [option.name] if effect.startswith(V2_ONLY) else []
    return v1, v2
