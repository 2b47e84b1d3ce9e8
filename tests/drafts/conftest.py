"""A hand-made configuration for what runs draft networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.language.record import SpeculatorRecord

_EMPTY: dict[str, Any] = {
    "title": "", "summary": "", "references": (), "status": "stable", "since": "0.1", "guarantee": "lossless",
    "implementation": None, "draft_model": None, "engines": {}, "capabilities": {}, "options": {}, "declares": None,
    "facts": {}, "rewrites": (), "defaults": {}, "derive": {}, "hash_factors": (), "rules": (), "resources": {},
}  # fmt: skip
_GROUPS = ("draft", "target", "engine", "sampling", "wiring", "verification", "numbers", "resources")


@pytest.fixture(scope="session")
def make_config() -> Callable[..., SpeculativeConfig]:
    """``make_config(k, options, draft={...}, target={...})``: a finalized configuration with these values only."""

    def make(k: int, options: dict[str, Any] | None = None, **groups: dict[str, Any]) -> SpeculativeConfig:
        spaces = {name: Namespace(groups.get(name, {})) for name in _GROUPS}
        record = SpeculatorRecord(name="hand_made", **_EMPTY)
        return SpeculativeConfig("hand_made", record, k, Namespace(options or {}), **spaces)

    return make
