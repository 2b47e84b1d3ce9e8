"""``hf_overrides``: keys of a checkpoint's config.json that the user replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.config.findings.diagnostics import Found, Origin

ROPE_KEYS = ("rope_scaling", "rope_parameters")  # two layouts of one setting: setting one replaces the other


def override_config(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The config with keys replaced; nested configs merge, the two layouts of rope settings replace each other."""
    result = dict(config)
    for key, value in overrides.items():
        old = result.get(key)
        if key in ROPE_KEYS:
            for layout in ROPE_KEYS:
                result.pop(layout, None)
            theta = old.get("rope_theta") if isinstance(old, Mapping) else None
            keep = isinstance(value, Mapping) and theta is not None and "rope_theta" not in value
            result[key] = {**value, "rope_theta": theta} if keep else value
        elif isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = override_config(old, value)
        else:
            result[key] = value
    return result


def overridden_key(detail: str, overrides: Mapping[str, Any]) -> bool:
    """Whether a checkpoint key was set by ``hf_overrides``."""
    top = detail.split(".", 1)[0].split("[", 1)[0]
    return top in overrides


def overridden_fact(found: Found, overrides: Found) -> Found:
    """A fact with the origin of the ``hf_overrides`` that set its key."""
    if found.origin.kind != "checkpoint" or not overridden_key(found.origin.detail, overrides.value):
        return found
    origin = overrides.origin
    detail = f"{origin.detail}.{found.origin.detail}"
    return Found(found.value, Origin(origin.kind, detail, origin.source, found.origin.inputs))
