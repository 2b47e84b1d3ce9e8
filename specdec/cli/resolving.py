"""Resolving for verbs: a file or the packaged default, overrides, and sweeps over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specdec.config.speculative import Resolution

DEFAULT_CONFIG = "default.yaml"


def default_config() -> Path:
    """The configuration that verbs use without a file."""
    return Path(__file__).resolve().parents[1] / DEFAULT_CONFIG


def resolve_all(
    file: str | None, overrides: Sequence[str], multirun: bool = False, strict: bool = False
) -> Iterator[tuple[list[str], Resolution]]:
    """(swept overrides, resolution) for each run; one run with an empty label without ``multirun``."""
    from specdec.config.resolve import resolve

    path = Path(file) if file else default_config()
    if not multirun:
        yield [], resolve(path, overrides, strict=strict)
        return
    from specdec.config.overrides import expand_sweep

    for combination in expand_sweep(overrides):
        yield list(combination), resolve(path, combination, strict=strict)
