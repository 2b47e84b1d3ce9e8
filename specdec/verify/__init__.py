"""Verification: decides which draft tokens the target accepts and what it emits after them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# name -> module; loaded on first use, because the advice part must run where torch is not installed
_EXPORTS = {
    "Verifier": "specdec.verify.verifier",
    "Verified": "specdec.verify.verifier",
    "verify": "specdec.verify.verifier",
    "MODES": "specdec.verify.modes",
    "DenseDraftLogits": "specdec.verify.draft_laws",
    "TopKDraftLogits": "specdec.verify.draft_laws",
    "DraftLogitsStore": "specdec.verify.draft_store",
    "draw_drafts": "specdec.verify.drafting",
    "DrawnDrafts": "specdec.verify.drafting",
    "AcceptanceEstimator": "specdec.verify.estimator",
    "ConfidenceEstimator": "specdec.verify.estimator",
    "advise_k": "specdec.verify.advice",
    "Advice": "specdec.verify.advice",
    "make_mode": "specdec.verify.modes",
    "NoiseLedger": "specdec.verify.noise",
    "Role": "specdec.verify.noise",
}
__all__ = [
    "MODES",
    "AcceptanceEstimator",
    "Advice",
    "ConfidenceEstimator",
    "DenseDraftLogits",
    "DraftLogitsStore",
    "DrawnDrafts",
    "NoiseLedger",
    "Role",
    "TopKDraftLogits",
    "Verified",
    "Verifier",
    "advise_k",
    "draw_drafts",
    "make_mode",
    "verify",
]

if TYPE_CHECKING:
    from specdec.verify.advice import Advice, advise_k
    from specdec.verify.draft_laws import DenseDraftLogits, TopKDraftLogits
    from specdec.verify.draft_store import DraftLogitsStore
    from specdec.verify.drafting import DrawnDrafts, draw_drafts
    from specdec.verify.estimator import AcceptanceEstimator, ConfidenceEstimator
    from specdec.verify.modes import MODES, make_mode
    from specdec.verify.noise import NoiseLedger, Role
    from specdec.verify.verifier import Verified, Verifier, verify


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'specdec.verify' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
