"""A training-side config that was kept in the checkpoint, against what is served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.facts.canonical import read_facts
from specdec.config.checkpoint.files.value import Checkpoint
from specdec.config.findings.diagnostics import Diagnostic

TRAINED = "trained"  # the key under which trainers keep their own settings


def check_training(context: CheckContext) -> Iterator[Diagnostic]:
    """Every fact that both sides state must have one value; a draft is only as good as the layout it was trained in."""
    trained = context.checkpoint.config.get(TRAINED)
    if not isinstance(trained, Mapping):
        return
    layers = context.target("num_hidden_layers")
    facts, _ = read_facts(context.record.facts, Checkpoint(config=trained), target_layers=layers)
    for name, found in facts.items():
        served = context.facts.get(name)
        if found.origin.kind != "checkpoint" or served is None or served.value == found.value:
            continue
        key = found.origin.detail
        message = f"{key} was {json.dumps(found.value)} in training and is {json.dumps(served.value)} now"
        yield finding("train-serve-mismatch", f"draft.{key}", message, f"serve with the trained {key}")
