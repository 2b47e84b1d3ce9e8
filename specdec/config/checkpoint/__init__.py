"""Checkpoint inspection without torch: from files or plain dicts to canonical facts, formats and findings."""

from specdec.config.checkpoint.convert import CONVERSIONS
from specdec.config.checkpoint.cross_check import check_method, cross_check
from specdec.config.checkpoint.detect import Detection, Identity, detect
from specdec.config.checkpoint.errors import CheckpointFault
from specdec.config.checkpoint.facts import as_type, in_speculators_format, read_facts
from specdec.config.checkpoint.inspect import Inspection, inspect_draft
from specdec.config.checkpoint.read import load_checkpoint
from specdec.config.checkpoint.rewrites import matches, rewrite
from specdec.config.checkpoint.target import check_target, matching_targets, read_target_facts, target_model_type
from specdec.config.checkpoint.tokenizer import TokenizerComparison, TokenizerInfo, compare_tokenizers
from specdec.config.checkpoint.value import Checkpoint

__all__ = [
    "CONVERSIONS",
    "Checkpoint",
    "CheckpointFault",
    "Detection",
    "Identity",
    "Inspection",
    "TokenizerComparison",
    "TokenizerInfo",
    "as_type",
    "check_method",
    "check_target",
    "compare_tokenizers",
    "cross_check",
    "detect",
    "in_speculators_format",
    "inspect_draft",
    "load_checkpoint",
    "matches",
    "matching_targets",
    "read_facts",
    "read_target_facts",
    "rewrite",
    "target_model_type",
]
