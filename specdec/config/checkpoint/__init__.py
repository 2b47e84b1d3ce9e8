"""Checkpoint inspection without torch: from files or plain dicts to canonical facts, formats and findings."""

from specdec.config.checkpoint.convert import CONVERSIONS
from specdec.config.checkpoint.cross_check import check_method, cross_check
from specdec.config.checkpoint.detect import Detection, accepts, declares, detect
from specdec.config.checkpoint.errors import CheckpointFault
from specdec.config.checkpoint.facts import as_type, in_speculators_format, read_facts
from specdec.config.checkpoint.identity import IDENTITY_TYPES, identity_facts
from specdec.config.checkpoint.inspect import Inspection, inspect_draft
from specdec.config.checkpoint.read import load_checkpoint
from specdec.config.checkpoint.rewrites import matches, rewrite
from specdec.config.checkpoint.target import matching_targets, read_target_facts, target_model_type
from specdec.config.checkpoint.tokenizer import TokenizerComparison, TokenizerInfo, compare_tokenizers
from specdec.config.checkpoint.value import Checkpoint

__all__ = [
    "CONVERSIONS", "IDENTITY_TYPES", "Checkpoint", "CheckpointFault", "Detection", "Inspection", "TokenizerComparison", "TokenizerInfo",
    "accepts", "as_type", "check_method", "compare_tokenizers", "cross_check", "declares", "detect", "identity_facts",
    "in_speculators_format", "inspect_draft", "load_checkpoint", "matches", "matching_targets", "read_facts", "read_target_facts",
    "rewrite", "target_model_type",
]  # fmt: skip
