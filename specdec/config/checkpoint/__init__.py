"""Checkpoint inspection without torch, in three rooms: files < facts < checks.

Enters: a path, a hub id or plain dicts. Leaves: a ``Checkpoint``, its canonical facts, the method it declares, findings.
"""

from specdec.config.checkpoint.checks.cross_check import check_method, cross_check
from specdec.config.checkpoint.checks.inspect import Inspection, inspect_draft
from specdec.config.checkpoint.facts.canonical import as_type, in_speculators_format, read_facts
from specdec.config.checkpoint.facts.convert import CONVERSIONS
from specdec.config.checkpoint.facts.detect import Detection, Identity, detect
from specdec.config.checkpoint.facts.rewrites import matches, rewrite
from specdec.config.checkpoint.facts.target_facts import (
    check_target,
    matching_targets,
    read_target_facts,
    target_model_type,
)
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.read import load_checkpoint
from specdec.config.checkpoint.files.tokenizer import TokenizerComparison, TokenizerInfo, compare_tokenizers
from specdec.config.checkpoint.files.value import Checkpoint

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
