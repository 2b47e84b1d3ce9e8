"""``resolve``: a user's configuration, checkpoints and records in; one finalized configuration or all that is wrong out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from specdec.config.final.speculative_config import Resolution, SpeculativeConfig
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.expressions import ExpressionError
from specdec.config.merge.settings import read_settings
from specdec.config.merge.target_side import (
    check_is_target,
    check_kv_dtype,
    check_length,
    check_parallel,
    given_checkpoint,
    read_target,
)
from specdec.config.read.inputs import read_config
from specdec.config.resolve.chain import members_path, resolve_chain
from specdec.config.resolve.examine import Shared
from specdec.config.resolve.single import Outcome, resolve_speculator
from specdec.config.schema.checker import unique
from specdec.config.schema.compose import compose
from specdec.config.schema.known import SPECULATIVE

# warnings that say a value had to be guessed, or that something in a checkpoint is not understood
GUESSES = frozenset(
    {"aux-layers-defaulted", "unknown-checkpoint-field", "mask-token-missing", "missing-checkpoint-field"}
)


def resolve(
    config: Any,
    overrides: Sequence[str] = (),
    *,
    target_config: Any = None,
    draft_config: Any = None,
    target_tensors: Any = None,
    draft_tensors: Any = None,
    registry: Any = None,
    strict: bool = False,
) -> Resolution:
    """Resolves a mapping, a path or a parsed ``Document`` into a ``SpeculativeConfig``. Never raises for bad input.

    ``target_config`` and ``draft_config`` are contents of ``config.json`` and are read from ``target.model`` and
    ``speculative.model`` when omitted; ``*_tensors`` map tensor names to shapes. ``strict`` turns guesses into errors.
    """
    given = read_config(config)
    if given.data is None:
        return finish(None, given.diagnostics, strict)
    composed = compose(given, overrides, registry)
    if not composed.usable:
        return finish(None, composed.diagnostics, strict)
    settings = read_settings(composed)
    target_given, found_target = given_checkpoint(target_config, target_tensors, "target")
    draft_given, found_draft = given_checkpoint(draft_config, draft_tensors, "draft")
    findings = [*composed.diagnostics, *settings.diagnostics, *found_target, *found_draft]
    target = read_target(settings, target_given, composed.registry)
    named = composed.data.get(SPECULATIVE)
    same = isinstance(named, dict) and named.get("model") == settings.value("target", "model") is not None
    if not same and (wrong := check_is_target(target, composed.registry)):
        return finish(None, [*composed.diagnostics, *wrong], strict)
    findings += [*target.diagnostics, *check_kv_dtype(target), *check_parallel(target), *check_length(target)]
    shared = Shared(composed, settings, target, draft_given, composed.registry)
    members = members_path(shared)
    try:
        outcome = resolve_speculator((SPECULATIVE,), shared) if members is None else resolve_chain(members, shared)
    except ExpressionError as error:  # of a record that an earlier step could not judge
        message = f"an expression of a record cannot be evaluated: {error.message}, in {error.expression!r}"
        found = Diagnostic("record-expression", "error", f"{SPECULATIVE}.method", message, "correct the record")
        return finish(None, (*findings, found), strict)
    return finish(outcome, (*findings, *outcome.diagnostics), strict)


def finish(outcome: Outcome | None, found: Iterable[Diagnostic], strict: bool) -> Resolution:
    """All findings once, errors first where a place has several; a config only when nothing is wrong."""
    diagnostics = unique(found)
    if strict:
        diagnostics = [replace(d, severity="error") if d.code in GUESSES else d for d in diagnostics]
    config: SpeculativeConfig | None = outcome.config if outcome else None
    if any(d.severity == "error" for d in diagnostics):
        config = None
    if config is not None:
        config = replace(config, warnings=tuple(d for d in diagnostics if d.severity == "warning"))
    return Resolution(config, tuple(diagnostics), outcome.provenance if outcome else {})
