"""What exporting to any engine shares: the outcome, explicit options, engine versions, flags of target and engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.config.export.encode import Flag, positional, shell, unprintable, words
from specdec.config.export.tables import in_range, parse_version, tables
from specdec.config.export.values import unknown_value
from specdec.config.final.speculative_config import SpeculativeConfig, plain
from specdec.config.findings.diagnostics import Diagnostic, Severity
from specdec.config.language.record import OptionSpec
from specdec.config.records.sections import section_fields

MISSING = object()
STATED = ("user", "command line")  # origins of values that a person wrote


@dataclass
class Exported:
    """The flags of another engine, the same settings as data, and what could not be carried over."""

    engine: str
    command: list[str]
    flags: list[Flag] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # vLLM's --speculative-config object, SGLang's arguments
    document: dict[str, Any] = field(default_factory=dict)  # a whole configuration file of the engine
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)

    @property
    def args(self) -> list[str]:
        """The flags as words of a command."""
        return words(self.flags)

    def shell(self) -> str:
        """One command line, quoted for a POSIX shell, a flag with its value on each line."""
        return shell([*self.command, *self.args])


def begin(engine: str, config: SpeculativeConfig, version: str | None) -> tuple[Exported, bool]:
    """The launcher and what is to say of the engine's version; False when the engine cannot run the method at all."""
    table = tables()[engine]
    model = str(config.target.get("model") or config.source.get("target", {}).get("model") or "TARGET")
    result = Exported(engine, [word.format(model=positional(model)) for word in table["launcher"]])
    result.document = {table["model_key"]: model}
    result.diagnostics += version_findings(engine, version, config)
    result.diagnostics += unsafe_values(engine, config)
    refused = refusal(engine, config)
    if refused is not None:
        result.diagnostics.append(refused)
    return result, refused is None


def unsafe_values(engine: str, config: SpeculativeConfig) -> list[Diagnostic]:
    """An error for each text that no command line can carry: one with a line break or another control character."""
    found = []
    for section, values in config.source.items():
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if section in ("target", "engine", "speculative") and unprintable(plain(value)):
                path = f"{section}.{name}"
                message = f"{path} holds a line break or another control character, which {tables()[engine]['title']} cannot be told"
                found.append(finding("export-unsafe-value", "error", path, message, "write it without", config))
    return found


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
    demand = entry.get("whole_block") if isinstance(entry, Mapping) else None
    block = config.draft.get("block_size")
    if demand and in_range(wanted, demand) and block is not None and config.num_speculative_tokens < block:
        message = f"{title} {version} drafts whole blocks with {config.method}: {block} tokens, not {config.num_speculative_tokens}"
        at, fix = "speculative.num_speculative_tokens", f"set it to {block}, or use {title} {demand['before']} or newer"
        found.append(finding("engine-cannot-run", "error", at, message, fix, config))
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


def section_flags(engine: str, config: SpeculativeConfig, version: str | None) -> tuple[list[Flag], list[Diagnostic]]:
    """Flags of the target and the engine that a person wrote; an error for one this engine has no flag for."""
    table = tables()[engine]
    args: list[Flag] = []
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
            unknown = unknown_value(engine, name, value, version)
            if unknown is not None:
                found.append(finding("export-no-effect", "error", path, f"{path}: {unknown[0]}", unknown[1], config))
                continue
            written = flag(engine, spelling, value) if spelling is not MISSING else None
            if written is None:
                message = f"{table['title']} has no flag for {path}" + (
                    f" {str(value).lower()}" if spelling is not MISSING else ""
                )
                fix = f"remove {name}, or run it elsewhere"
                found.append(finding("export-no-flag", "error", path, message, fix, config))
            else:
                args += written
    return args, found


def flag(engine: str, spelling: Any, value: Any) -> list[Flag] | None:
    """A flag with its value; None when the engine cannot be told this value.

    A spelling is a name, or a mapping from ``on`` and ``off`` to the bare flag that says it (null: nothing needs to be said).
    """
    if isinstance(spelling, Mapping):
        word = "on" if value is True else "off" if value is False else None
        if word not in spelling:
            return None
        return [Flag(spelling[word])] if spelling[word] is not None else []
    if value is False and not tables()[engine]["negated_flags"]:
        return None
    return [Flag(spelling, plain(value))]


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
