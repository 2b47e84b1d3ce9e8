"""What exporting to any engine shares: the outcome, explicit options, engine versions, flags of target and engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from specdec.config.final.speculative_config import SpeculativeConfig, plain
from specdec.config.findings.diagnostics import Diagnostic, Severity
from specdec.config.language.record import OptionSpec
from specdec.config.read.source import load
from specdec.config.records.sections import section_fields

MISSING = object()
STATED = ("user", "command line")  # origins of values that a person wrote


@dataclass
class Exported:
    """The flags of another engine, the same settings as data, and what could not be carried over."""

    engine: str
    command: list[str]
    args: list[str]
    settings: dict[str, Any]  # the engine's own form: vLLM's --speculative-config object, SGLang's server arguments
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)

    def shell(self) -> str:
        """One command line, quoted for a POSIX shell, a flag with its value on each line."""
        words = [shlex.quote(word) for word in [*self.command, *self.args]]
        lines, line = [], ""
        for word in words:
            if word.startswith("--") and line:
                lines.append(line)
                line = f"  {word}"
            else:
                line = f"{line} {word}".strip() if not line.startswith("  ") else f"{line} {word}"
        return " \\\n".join([*lines, line])


@lru_cache(maxsize=1)
def tables() -> Mapping[str, Any]:
    """Flag tables by engine."""
    data: Mapping[str, Any] = load(Path(__file__).with_name("flags.yaml")).data
    return data


def begin(engine: str, config: SpeculativeConfig, version: str | None) -> tuple[Exported, bool]:
    """The launcher and what is to say of the engine's version; False when the engine cannot run the method at all."""
    model = str(config.target.get("model") or config.source.get("target", {}).get("model") or "TARGET")
    result = Exported(engine, [word.format(model=model) for word in tables()[engine]["launcher"]], [], {})
    result.diagnostics += version_findings(engine, version, config)
    refused = refusal(engine, config)
    if refused is not None:
        result.diagnostics.append(refused)
    return result, refused is None


def finding(
    code: str, severity: Severity, path: str, message: str, fix: str | None, config: SpeculativeConfig
) -> Diagnostic:
    """A diagnostic at a value of the configuration, with the place where it was written."""
    origin = config.provenance.get(path)
    return Diagnostic(code, severity, path, message, fix, origin.source if origin else None)


def stated(config: SpeculativeConfig, path: str) -> bool:
    """Whether a person wrote this value, in the file or on the command line."""
    origin = config.provenance.get(path)
    return origin is not None and origin.kind in STATED


def chosen_options(config: SpeculativeConfig) -> Iterator[tuple[OptionSpec, Any]]:
    """Options that matter for another engine: written by a person, or not at the record's default."""
    for name, option in config.record.options.items():
        value = config.options.get(name)
        if name in ("num_speculative_tokens", "model", "method") or value is None:
            continue
        if stated(config, f"speculative.{name}") or plain(value) != option.default:
            origin = config.provenance.get(f"speculative.{name}")
            if origin is None or origin.kind in (*STATED, "record") or not option.name:
                yield option, plain(value)


def version_findings(engine: str, version: str | None, config: SpeculativeConfig) -> list[Diagnostic]:
    """A warning for a version newer than the tables, an error for one that is too old or that lacks the method."""
    table, entry = tables()[engine], config.record.engines.get(engine)
    if version is None:
        return []
    title, wanted = table["title"], parse_version(version)
    path = "speculative.method"
    if wanted is None:
        return [
            finding(
                "engine-version",
                "error",
                path,
                f"{version!r} is not a version",
                f"for example {table['tested']}",
                config,
            )
        ]
    found = []
    since = entry.get("since") if isinstance(entry, Mapping) else None
    if since is not None and wanted < (parse_version(str(since)) or ()):
        message = f"{title} has {config.method} since {since}, not in {version}"
        found.append(finding("engine-cannot-run", "error", path, message, f"use {title} {since} or newer", config))
    if wanted < (parse_version(table["oldest"]) or ()):
        message = f"{title} {version} is older than {table['oldest']}, the first whose flags are known here"
        found.append(finding("engine-version", "error", path, message, f"use {title} {table['tested']}", config))
    if wanted > (parse_version(table["tested"]) or ()):
        message = f"the flags are those of {title} {table['tested']}; {version} may have renamed or removed some"
        found.append(
            finding(
                "untested-engine-version",
                "warning",
                path,
                message,
                f"check with: {table['launcher'][0]} --help",
                config,
            )
        )
    return found


def parse_version(text: str) -> tuple[int, ...] | None:
    """``0.33.0`` as (0, 33): the parts that the tables know; None for something else."""
    parts = text.lstrip("v").split(".")[:2]
    return tuple(int(part) for part in parts) if parts and all(part.isdigit() for part in parts) else None


def section_flags(engine: str, config: SpeculativeConfig) -> tuple[list[str], list[Diagnostic]]:
    """Flags of the target and the engine that a person wrote; an error for one this engine has no flag for."""
    table = tables()[engine]
    args: list[str] = []
    found: list[Diagnostic] = []
    for section in ("target", "engine"):
        values: Mapping[str, Any] = config.source.get(section) or {}
        for name, value in values.items():
            spec = section_fields()[section].get(name)
            path = f"{section}.{name}"
            if name == "model" or value is None:
                continue
            spelling = table[section].get(name, table["target"].get(name, MISSING))
            if spec is not None and value == spec.default and (spelling is None or spelling is MISSING):
                continue
            if spelling is None:
                message = f"{path} is read by the embedded engine and by plan only; it has no flag in {table['title']}"
                found.append(finding("export-no-flag", "note", path, message, None, config))
                continue
            words = flag(engine, spelling, value) if spelling is not MISSING else None
            if words is None:
                message = f"{table['title']} has no flag for {path}" + (
                    f" {str(value).lower()}" if spelling is not MISSING else ""
                )
                fix = f"remove {name}, or run it elsewhere"
                found.append(finding("export-no-flag", "error", path, message, fix, config))
            else:
                args += words
    return args, found


def flag(engine: str, spelling: Any, value: Any) -> list[str] | None:
    """A flag with its value; None when the engine cannot be told this value.

    A spelling is a name, or a mapping from ``on`` and ``off`` to the bare flag that says it (null: nothing needs to be said).
    """
    if isinstance(spelling, Mapping):
        word = "on" if value is True else "off" if value is False else None
        if word not in spelling:
            return None
        return [spelling[word]] if spelling[word] is not None else []
    if value is True:
        return [spelling]
    if value is False:
        return [spelling.replace("--", "--no-", 1)] if tables()[engine]["negated_flags"] else None
    return [spelling, value if isinstance(value, str) else json.dumps(plain(value))]


def sampling_findings(engine: str, config: SpeculativeConfig) -> list[Diagnostic]:
    """Sampling parameters of the file that the engine refuses while speculating."""
    table = tables()[engine]
    found = []
    for name in table["sampling"]["refused"]:
        if (config.source.get("sampling") or {}).get(name):
            message = f"{name}: {table['sampling']['why']}"
            found.append(
                finding(
                    "unsupported-sampling-param",
                    "error",
                    f"sampling.{name}",
                    message,
                    f"remove {name}, or use the embedded engine",
                    config,
                )
            )
    return found


def refusal(engine: str, config: SpeculativeConfig) -> Diagnostic | None:
    """Why this engine cannot run the method at all; None when it can."""
    entry = config.record.engines.get(engine)
    title = tables()[engine]["title"]
    if isinstance(entry, Mapping) and entry.get("supported", True) is not False:
        return None
    reason = entry.get("reason", "") if isinstance(entry, Mapping) else "no such speculator"
    message = f"{title} cannot run {config.method}: {reason}"
    return finding(
        "engine-cannot-run",
        "error",
        "speculative.method",
        message,
        "'specdec list' shows what each engine runs",
        config,
    )
