"""A configuration as SGLang server flags: k in SGLang's units (steps and the verify block)."""

from __future__ import annotations

import re

from specdec.config.export.common import (
    Exported,
    begin,
    chosen_options,
    finding,
    flag,
    sampling_findings,
    section_flags,
    stated,
)
from specdec.config.export.encode import Flag, settings
from specdec.config.export.tables import tables
from specdec.config.export.values import unknown_value
from specdec.config.final.speculative_config import SpeculativeConfig

ENGINE = "sglang"
TREE = "tree"


def export(config: SpeculativeConfig, version: str | None = None) -> Exported:
    """SGLang's command and flags; errors name every option that has no flag there."""
    result, runs = begin(ENGINE, config, version)
    if not runs:
        return result
    algorithm = config.record.engines[ENGINE]["algorithm"]
    spelling = tables()[ENGINE]["algorithms"][algorithm]
    flags, found = section_flags(ENGINE, config, version)
    flags.append(Flag("--speculative-algorithm", algorithm))
    if config.options.get("model") is not None and stated(config, "speculative.model"):
        flags.append(Flag("--speculative-draft-model-path", str(config.options["model"])))
    tree = config.options.get(TREE)
    units = spelling.get(TREE, {}) if tree else spelling["k"]
    flags += [Flag(name, int(fill(template, config))) for name, template in units.items()]
    if spelling.get("fixed_k") and stated(config, "speculative.num_speculative_tokens"):
        trained = config.draft.get("block_size")
        if trained is not None and trained != config.num_speculative_tokens:
            message = f"SGLang always drafts the block of the checkpoint ({trained}) with {algorithm}, not {config.num_speculative_tokens}"
            found.append(
                finding(
                    "export-no-effect",
                    "error",
                    "speculative.num_speculative_tokens",
                    message,
                    f"set it to {trained}",
                    config,
                )
            )
    for option, value in chosen_options(config):
        path = f"speculative.{option.name}"
        if option.name == TREE:
            continue
        name = spelling["options"].get(option.name)
        kind = spelling.get("values", {}).get(option.name, option.name)
        if (wrong := unknown_value(ENGINE, kind, value, version)) is not None:
            found.append(finding("export-no-effect", "error", path, f"{option.name}: {wrong[0]}", wrong[1], config))
            continue
        written = flag(ENGINE, name, value) if name is not None else None
        if written is not None:
            flags += written
        elif stated(config, path) and value != option.default:
            _, _, reason = option.engines.get(ENGINE, "").partition(": ")
            message = f"SGLang has no flag for {option.name} with {algorithm}" + (f": {reason}" if reason else "")
            found.append(
                finding(
                    "export-no-effect", "error", path, message, f"remove {option.name}, or run it elsewhere", config
                )
            )
    result.diagnostics += [*found, *sampling_findings(ENGINE, config)]
    result.flags, result.settings = flags, settings(flags)
    result.document |= result.settings
    return result


def fill(template: str, config: SpeculativeConfig) -> str:
    """``{k}``, ``{k+1}`` and ``{tree.steps}`` in a flag's value."""
    k = config.num_speculative_tokens

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in ("k", "k+1"):
            return str(k + len(name) // 3)
        return str(config.get(f"options.{name}"))

    return re.sub(r"\{([\w.+]+)\}", value, template)
