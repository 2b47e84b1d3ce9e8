"""Settings of the draft: its own, or the target's where the record says so. Nothing is inherited without a stated rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec.config.checkpoint.facts.canonical import positions_of
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.record import OptionSpec, SpeculatorRecord
from specdec.config.merge.ranks import strongest, with_beaten

INHERIT = "inherit"  # the value of an option that takes the target's on purpose
AUTO = "auto"
# setting of the draft -> the fact that states what the checkpoint itself has
STATED = {"dtype": "torch_dtype", "quantization": "quant_method"}
# setting of the draft -> the option that sets it; the option's `inherit` is the rule
SETTINGS = {
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "attention_backend": "attention_backend",
    "moe_backend": "moe_backend",
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "revision": "revision",
    "code_revision": "code_revision",
    "trust_remote_code": "trust_remote_code",
}
NONE_STATED = Origin("checkpoint", "no quantization_config")


@dataclass(frozen=True)
class Side:
    """What is known about the draft: its facts, and whether its weights are part of the target's checkpoint."""

    facts: Mapping[str, Found]
    same_checkpoint: bool
    known: bool  # its config.json was read


def draft_settings(
    record: SpeculatorRecord, options: Mapping[str, Found], target: Mapping[str, Found], side: Side
) -> dict[str, Found | None]:
    """Setting -> value and origin; None where there is none. ``target`` are the target's final settings."""
    found: dict[str, Found | None] = {}
    for setting, option in SETTINGS.items():
        spec = record.options.get(option)
        if spec is not None:
            found[setting] = _setting(setting, spec, options.get(option), target.get(setting), side)
    return found


def _setting(setting: str, spec: OptionSpec, own: Found | None, theirs: Found | None, side: Side) -> Found | None:
    inherited = _inherited(setting, spec, theirs, side)
    stated = side.facts.get(STATED.get(setting, setting))
    if own is not None and own.origin.kind in ("user", "command line"):
        if own.value != INHERIT:
            return _beating(own, inherited, stated)
        return Found(theirs.value, _from_target(setting, "asked for by 'inherit'")) if theirs else None
    if inherited is not None:
        return _beating(inherited, stated)
    if stated is not None:
        return stated
    if setting == "quantization":
        return Found(None, NONE_STATED) if side.known else None
    if own is not None:
        return own
    return Found(
        AUTO if "string" in spec.types and setting != "revision" else None, Origin("record", f"default of {spec.name}")
    )


def _inherited(setting: str, spec: OptionSpec, theirs: Found | None, side: Side) -> Found | None:
    """The target's value when the option's rule lets it through."""
    if theirs is None or spec.inherit not in ("target", "same_checkpoint"):
        return None
    if spec.inherit == "same_checkpoint" and not side.same_checkpoint:
        return None
    rule = "same checkpoint" if spec.inherit == "same_checkpoint" else "inherited unless set"
    return Found(theirs.value, _from_target(setting, rule))


def _from_target(setting: str, rule: str) -> Origin:
    return Origin("target", f"target.{setting} ({rule})", inputs=(f"target.{setting}",))


def _beating(winner: Found, *losers: Found | None) -> Found:
    known = {v for _, v in winner.origin.over}
    beaten = [(found.origin, found.value) for found in losers if found is not None and found.value not in known]
    return Found(winner.value, with_beaten(winner.origin, beaten))


def draft_model_len(
    own: Found | None, record: SpeculatorRecord, facts: Mapping[str, Found], served: Found | None, cache_only: bool
) -> tuple[dict[str, Found], list[Diagnostic]]:
    """``max_position_embeddings``, ``max_model_len`` and ``speculate_until`` of the draft.

    A draft that sits at the target's positions and whose rotary table is only a cache is extended to the served
    length; any other draft stops speculating at its own length. A length that the user gave is kept or refused.
    """
    findings: list[Diagnostic] = []
    result: dict[str, Found] = {}
    positions = facts.get("max_position_embeddings")
    limit = None if served is None else int(served.value)
    stretched = positions_of(facts, "draft")
    capacity = None if stretched is None else int(stretched.value)
    stated = "" if stretched is positions or stretched is None else f" ({stretched.origin.detail})"
    shares = record.capabilities.get("shares_target_positions", True)
    if capacity is not None and limit is not None and positions is not None and capacity < limit:
        if shares and cache_only:
            message = (
                f"the draft's max_position_embeddings is {capacity}{stated}, the engine serves {limit} tokens: "
                f"its rotary table is extended from {capacity} to {limit}"
            )
            fix = "nothing to do if acceptance holds at long context; else set speculative.max_model_len"
            findings.append(
                Diagnostic("draft-positions-extended", "warning", "draft.max_position_embeddings", message, fix)
            )
            origin = Origin("derived", "the rotary table is only a cache", inputs=("engine.max_model_len",))
            positions = Found(limit, with_beaten(origin, [(positions.origin, positions.value)]))
            capacity = limit
        elif own is None:
            message = (
                f"the draft can be used up to {capacity} tokens{stated}, the engine serves {limit}: "
                f"longer requests go on without drafts from {capacity} tokens on"
            )
            fix = f"lower engine.max_model_len to {capacity}, or accept it by setting speculative.max_model_len: {capacity}"
            findings.append(
                Diagnostic("draft-shorter-than-target", "warning", "draft.max_position_embeddings", message, fix)
            )
    if positions is not None:
        result["max_position_embeddings"] = positions
    until = strongest([(f.origin, f.value) for f in (own,) if f is not None])
    if until is None:
        bounds = [(b, o) for b, o in ((capacity, stretched), (limit, served)) if b is not None and o is not None]
        if bounds:
            value, source = min(bounds, key=lambda pair: pair[0])
            inputs = ("draft.max_position_embeddings", "engine.max_model_len")
            origin = (
                source.origin
                if len(bounds) == 1
                else Origin("derived", "the shorter of draft and engine", inputs=inputs)
            )
            until = Found(value, origin)
    if until is not None:
        result["max_model_len"] = until
        result["speculate_until"] = Found(
            until.value, Origin("derived", "drafting stops there", inputs=("draft.max_model_len",))
        )
    return result, findings


def check_settings(settings: Mapping[str, Found | None], facts: Mapping[str, Any], side: Side) -> list[Diagnostic]:
    """What an inherited dtype costs the draft, for the reader: a cast of its weights."""
    stored, chosen = facts.get(STATED["dtype"]), settings.get("dtype")
    if (
        stored in (None, AUTO)
        or chosen is None
        or chosen.value in (None, AUTO)
        or chosen.origin.kind in ("user", "command line")
    ):
        return []
    if stored == chosen.value or side.same_checkpoint:
        return []
    message = f"the draft's weights are {stored}; they are cast to the target's {chosen.value}"
    fix = f"set speculative.dtype to keep {stored}"
    return [Diagnostic("draft-dtype-cast", "warning", "draft.dtype", message, fix)]


def check_quantization(
    own: Found | None, chosen: Found | None, target: Mapping[str, Found], facts: Mapping[str, Found], side: Side
) -> list[Diagnostic]:
    """A quantization that was asked for must be in the draft's weights, or be made while loading; a target's alone is a note."""
    at = "speculative.quantization"
    if not side.known or side.same_checkpoint or chosen is None:
        return []
    stored, theirs = facts.get(STATED["quantization"]), target.get("quantization")
    by_user = own is not None and own.origin.kind in ("user", "command line")
    source = own.origin.source if own is not None else None
    made_while_loading = theirs is not None and theirs.origin.kind in ("user", "command line")
    if not by_user:
        if stored is None and made_while_loading and theirs is not None:
            message = f"the target is quantized to {theirs.value} while it is loaded; the draft is not and stays as it is stored"
            fix = "set speculative.quantization: inherit to quantize the draft too"
            return [Diagnostic("draft-not-quantized", "note", at, message, fix)]
        return []
    if chosen.value is None or (stored is not None and stored.value == chosen.value):
        return []
    if stored is not None:
        message = f"quantization is {chosen.value}, but the draft's config.json says {stored.value}"
        return [Diagnostic("quantization-differs", "error", at, message, "remove it: the draft's own is used", source)]
    if is_online(chosen.value) or (own is not None and own.value == INHERIT and made_while_loading):
        return []
    message = f"quantization is {chosen.value}, but the draft's weights are not quantized (no quantization_config in its config.json)"
    fix = "remove it, or name a quantization that is made while loading, such as fp8_per_tensor"
    return [Diagnostic("draft-not-quantized", "error", at, message, fix, source)]


def is_online(name: Any) -> bool:
    """Whether a quantization is made while loading, which its name says (``fp8_per_tensor``, ``mxfp8``)."""
    return isinstance(name, str) and (name.endswith("online") or "_per_" in name)
