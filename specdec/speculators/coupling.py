"""Whether drafts and the target's own draws share their noise."""

from __future__ import annotations

from specdec.config.speculative import SpeculativeConfig
from specdec.verify.modes import make_mode


def couples_drafts(config: SpeculativeConfig) -> bool:
    """True when the verification mode emits the target's own draws, so drafts may use the same noise."""
    try:
        return make_mode(config.get("verification.rejection_sample_method") or "standard").couples_drafts
    except ValueError:  # a mode that needs options; those do not couple
        return False
