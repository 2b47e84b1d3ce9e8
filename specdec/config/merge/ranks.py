"""Merging values by rank, keeping where each came from and what it beat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specdec.config.findings.diagnostics import Found, Origin

Candidate = tuple[Origin, Any]


def strongest(candidates: Iterable[Candidate]) -> Found | None:
    """The first candidate that has a value; the others that have one stand in its ``over``.

    Candidates come strongest first. None is no value: an explicit null in a file equals an absent key.
    Mappings merge key by key, so a stronger layer may set one key of a weaker one's mapping.
    """
    present = [(origin, value) for origin, value in candidates if value is not None]
    if not present:
        return None
    origin, value = present[0]
    if isinstance(value, Mapping):
        for _, weaker in present[1:]:
            if isinstance(weaker, Mapping):
                value = merge_maps(weaker, value)
    beaten = tuple((o, v) for o, v in present[1:])
    return Found(value, with_beaten(origin, beaten))


def with_beaten(origin: Origin, beaten: Iterable[Candidate]) -> Origin:
    """The origin with more values it won against."""
    more = tuple(beaten)
    if not more:
        return origin
    return Origin(origin.kind, origin.detail, origin.source, origin.inputs, (*origin.over, *more))


def merge_maps(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings as one; ``above`` wins, key by key, at every depth. Lists replace."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge_maps(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
