"""Looks a hub repository up in the local Hugging Face cache; never on the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def looks_like_hub_id(text: str) -> bool:
    """``org/name``: one slash, no file suffix of a checkpoint, not a relative path."""
    is_file = text.endswith((".gguf", ".json", ".safetensors"))
    return bool(_HUB_ID.fullmatch(text)) and not is_file and not text.startswith("~")


def cached_snapshot(repo: str, revision: str = "main") -> Path | None:
    """The snapshot directory of ``repo`` in the cache, or None."""
    root = _cache_root() / ("models--" + repo.replace("/", "--"))
    try:
        reference = root / "refs" / revision
        commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
        snapshot = root / "snapshots" / commit
        if snapshot.is_dir():
            return snapshot
        snapshots = sorted(p for p in (root / "snapshots").iterdir() if p.is_dir())
    except OSError:
        return None
    return snapshots[0] if len(snapshots) == 1 and revision == "main" else None


def _cache_root() -> Path:
    if hub := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(hub)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "huggingface" / "hub"
