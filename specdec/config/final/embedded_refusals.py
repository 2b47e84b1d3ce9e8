"""What the embedded engine cannot do of a configuration: errors for what it refuses, warnings for what it ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specdec.config.final.speculative_config import SpeculativeConfig, plain
from specdec.config.findings.diagnostics import Diagnostic, Origin
from specdec.config.language.record import OptionSpec
from specdec.config.read.inputs import shown
from specdec.config.records.sections import section_fields

ENGINE = "embedded"
STATED = ("user", "command line")
ABOVE = re.compile(r"refused when (\w+) is above (\d+)")  # a key of an option that is an object
ELSEWHERE = "remove it, or run this configuration with `specdec export vllm`"


def embedded_findings(config: SpeculativeConfig) -> list[Diagnostic]:
    """Everything a person asked for that this engine would not do; an error where the output would be another one.

    Records say so per option and ``sections.yaml`` per field of ``target:`` and ``engine:``.
    """
    found = [d for member in config.members or (config,) for d in _of_method(member)]
    for section in ("target", "engine"):
        for name, spec in section_fields()[section].items():
            value = config.get(f"{section}.{name}")
            found += _judged(spec, value, f"{section}.{name}", config.provenance)
    return list(dict.fromkeys(found))


def plain_findings(config: SpeculativeConfig) -> list[Diagnostic]:
    """The same for the target alone, decoded without speculation."""
    return [d for d in embedded_findings(config) if d.path.startswith(("target.", "engine."))]


def _of_method(config: SpeculativeConfig) -> Iterator[Diagnostic]:
    label = next(
        (path for path in config.provenance if re.fullmatch(r"speculative[^:]*\.method", path)), "speculative.method"
    )
    status = config.record.engines.get(ENGINE)
    if config.record.implementation is None or status not in (None, True, "yes"):
        message = f"{config.method} is {status or 'not made'} in the embedded engine"
        fix = "choose a method that runs here ('specdec list'), or run it elsewhere ('specdec export vllm')"
        yield _finding("engine-cannot-run", "error", label, message, fix, config.provenance)
    for name, option in config.record.options.items():
        path = label.removesuffix("method") + name
        yield from _judged(option, config.options.get(name), path, config.provenance)


def _judged(spec: OptionSpec, value: Any, path: str, provenance: Mapping[str, Origin]) -> Iterator[Diagnostic]:
    """A finding when the engine refuses this value, or ignores it although a person wrote it."""
    effect, value, origin = spec.engines.get(ENGINE, "read"), plain(value), provenance.get(path)
    word, _, reason = effect.partition(":")
    kind = origin.kind if origin is not None else "derived"
    asks_nothing = value in (None, {}, "auto", spec.default) or kind == "checkpoint"
    if word.startswith("refused"):
        limit = ABOVE.match(word)
        if limit is not None:
            asks_nothing = not (isinstance(value, Mapping) and (value.get(limit[1]) or 0) > int(limit[2]))
        if not asks_nothing:
            message = f"{path} is {shown(value)}, which the embedded engine cannot do: {reason.strip()}"
            yield _finding("engine-cannot-run", "error", path, message, ELSEWHERE, provenance)
    elif word == "ignored" and kind in STATED and value is not None and (value is not False or spec.default):
        message = f"{path} has no effect in the embedded engine: {reason.strip()}"
        yield _finding("export-no-effect", "warning", path, message, "remove it", provenance)


def _finding(
    code: str, severity: Any, path: str, message: str, fix: str, provenance: Mapping[str, Origin]
) -> Diagnostic:
    origin = provenance.get(path)
    return Diagnostic(code, severity, path, message, fix, origin.source if origin else None)
