"""A configuration as SGLang server flags: k in SGLang's units (steps and the verify block)."""

from __future__ import annotations

import re
from typing import Any

from specdec.config.export.common import (
    Exported,
    begin,
    chosen_options,
    finding,
    flag,
    sampling_findings,
    section_flags,
    stated,
    tables,
)
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
    args, found = section_flags(ENGINE, config)
    result.args = [*args, "--speculative-algorithm", algorithm]
    if config.options.get("model") is not None and stated(config, "speculative.model"):
        result.args += ["--speculative-draft-model-path", str(config.options["model"])]
    tree = config.options.get(TREE)
    units = spelling.get(TREE, {}) if tree else spelling["k"]
    for name, template in units.items():
        result.args += [name, fill(template, config)]
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
        words = flag(ENGINE, name, value) if name is not None else None
        if words is not None:
            result.args += words
        elif value != option.default:
            _, _, reason = option.engines.get(ENGINE, "").partition(": ")
            message = f"SGLang has no flag for {option.name} with {algorithm}" + (f": {reason}" if reason else "")
            found.append(
                finding(
                    "export-no-effect", "error", path, message, f"remove {option.name}, or run it elsewhere", config
                )
            )
    result.diagnostics += [*found, *sampling_findings(ENGINE, config)]
    result.settings = as_settings(result.args)
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


def as_settings(args: list[str]) -> dict[str, Any]:
    """Flags as SGLang's server arguments: the form of its YAML configuration file."""
    settings: dict[str, Any] = {}
    for index, word in enumerate(args):
        if word.startswith("--"):
            following = args[index + 1] if index + 1 < len(args) and not args[index + 1].startswith("--") else True
            settings[word[2:]] = int(following) if isinstance(following, str) and following.isdigit() else following
    return settings
