"""Whether drafts and the target's own draws share their noise."""

from __future__ import annotations

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.verify.modes import make_mode

_STANDARD, _GREEDY = "standard", "greedy"


def couples_drafts(config: SpeculativeConfig) -> bool:
    """True when the verification mode emits the target's own draws, so drafts may use the same noise."""
    try:
        return make_mode(config.get("verification.rejection_sample_method") or _STANDARD).couples_drafts
    except ValueError:  # a mode that needs options; those do not couple
        return False


def emits_own_draws(config: SpeculativeConfig) -> bool:
    """True when sampled text may be the target's own draws, whatever is drafted.

    Standard verification of one-hot drafts accepts a draft as often as the target draws it, so coupling them has the
    same law and the same acceptance; and equal seeds then give equal texts however many tokens were drafted.
    """
    if couples_drafts(config):
        return True
    mode = config.get("verification.rejection_sample_method") or _STANDARD
    methods = [part.get("options.draft_sample_method") for part in (config, *config.members)]
    return mode == _STANDARD and all(method in (None, _GREEDY) for method in methods)
