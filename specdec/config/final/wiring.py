"""How the draft is wired to the target: which hidden states it reads, which weights it shares, how ids map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from specdec.config.checkpoint.checks.layers import SPREADS
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.language.record import SpeculatorRecord
from specdec.config.merge.ranks import with_beaten

AUX_OPTION = "aux_layers"
DEFAULT_WORD = "default"
GUESSED = "aux-layers-defaulted"


def aux_layers(
    record: SpeculatorRecord,
    facts: Mapping[str, Found],
    target: Mapping[str, Found],
    chosen: Found | None,
    known: bool = True,
) -> tuple[Found | None, list[Diagnostic], frozenset[str]]:
    """Boundary ids that the target's forward must keep: the user's, else the draft's, else a guess that warns.

    ``known``: the draft's config was read; otherwise nothing can be said about what it lacks.
    """
    rule = record.tensors.get("aux_layers") or {}
    fact = facts.get(rule.get("fact", ""))
    layers = target["num_hidden_layers"].value if "num_hidden_layers" in target else None
    by_user = chosen is not None and chosen.origin.kind in ("user", "command line")
    if chosen is not None and by_user and chosen.value != DEFAULT_WORD:
        if isinstance(chosen.value, str):  # no list and not the word: a rule of the record says so
            return None, [], frozenset({GUESSED})
        ids = list(chosen.value)
        findings = check_user_ids(ids, layers, chosen.origin)
        beaten = [(fact.origin, list(fact.value))] if fact is not None and fact.value != ids else []
        return Found(ids, with_beaten(chosen.origin, beaten)), findings, frozenset({GUESSED})
    off = rule.get("unless")
    if off and off["fact"] in facts and facts[off["fact"]].value == off["equals"]:
        return Found([], facts[off["fact"]].origin), [], frozenset({GUESSED})
    if fact is not None:
        return fact, [], frozenset({GUESSED}) if by_user else frozenset()
    if not rule or not record.capabilities.get("uses_aux_hidden_states"):
        return None, [], frozenset()
    if layers is not None and known:
        ids = SPREADS[rule["default"]](layers, rule.get("default_count", 3))
        return Found(ids, Origin("derived", "default layers", inputs=("target.num_hidden_layers",))), [], frozenset()
    if by_user or not known:
        return None, [], frozenset({GUESSED})
    message = f"neither the draft ({rule.get('pin')}) nor a known target says which layers the draft reads; they will be a guess"
    fix = f"set {rule.get('pin')} in the draft's config.json, or speculative.{AUX_OPTION}"
    return None, [Diagnostic(GUESSED, "warning", f"draft.{rule.get('pin')}", message, fix)], frozenset()


def check_user_ids(ids: Sequence[int], layers: int | None, origin: Origin) -> list[Diagnostic]:
    """The user's boundary ids: inside the target, strictly increasing."""
    at = f"speculative.{AUX_OPTION}"
    outside = [i for i in ids if i < 0 or (layers is not None and i > layers)]
    if outside:
        limit = (
            f"the target has {layers} layers, so boundaries run from 0 to {layers}"
            if layers is not None
            else "ids start at 0"
        )
        message = f"boundary {outside[0]} is out of range: {limit}"
        return [Diagnostic("layer-id-out-of-range", "error", at, message, "name layers of this target", origin.source)]
    if any(b <= a for a, b in pairwise(ids)):
        message = f"the layer ids {list(ids)} must increase strictly"
        return [
            Diagnostic("layer-ids-not-increasing", "error", at, message, f"write {sorted(set(ids))}", origin.source)
        ]
    return []


def vocab_mode(
    options: Mapping[str, Found], facts: Mapping[str, Found], target: Mapping[str, Found], own_vocab: bool
) -> Found | None:
    """``same``, ``shared-prefix`` (equal ids up to padding), ``heterogeneous`` (matched by text) or ``reduced`` (mapped by d2t)."""
    ours, theirs = facts.get("vocab_size"), target.get("vocab_size")
    if _on(options, "use_heterogeneous_vocab"):
        return Found("heterogeneous", options["use_heterogeneous_vocab"].origin)
    reduced = facts.get("draft_vocab_size")
    full = theirs or ours
    if reduced is not None and full is not None and reduced.value < full.value:
        return Found("reduced", reduced.origin)
    if (
        own_vocab
        and ours is not None
        and theirs is not None
        and ours.value != theirs.value
        and _on(options, "allow_padded_vocab")
    ):
        return Found("shared-prefix", options["allow_padded_vocab"].origin)
    if ours is None and reduced is None:
        return None
    return Found("same", Origin("derived", "one vocabulary", inputs=("draft.vocab_size", "target.vocab_size")))


def shared_weights(record: SpeculatorRecord, facts: Mapping[str, Found]) -> dict[str, Found | None]:
    """``lm_head`` and ``embed_tokens``: whose tensor is used; None when the draft's tensors are not known."""
    shared: Mapping[str, str] = record.tensors.get("shared") or {}
    values: dict[str, Found | None] = {}
    for weight in shared:
        found = facts.get(weight)
        if found is not None and found.value == "target":
            found = Found("target", Origin("target", found.origin.detail, inputs=found.origin.inputs))
        values[weight] = found
    return values


def step_to_layer(k: int | None, modules: Any) -> Found | None:
    """Which of the draft's modules drafts step i; one module drafts them all."""
    if k is None or not isinstance(modules, int) or modules < 1:
        return None
    origin = Origin("derived", f"{modules} modules in turn", inputs=("speculative.num_speculative_tokens",))
    return Found([step % modules for step in range(k)], origin)


def target_kv_layers(facts: Mapping[str, Found], target: Mapping[str, Found]) -> Found | None:
    """Per kind of the draft's layers the target's last layer of that kind with keys and values of its own."""
    ours, theirs = facts.get("layer_types"), target.get("layer_types")
    if ours is None or theirs is None:
        return None
    shared = target["num_kv_shared_layers"].value if "num_kv_shared_layers" in target else 0
    own = theirs.value[: len(theirs.value) - shared]
    last = {kind: layer for layer, kind in enumerate(own)}
    kinds = list(dict.fromkeys(ours.value))
    if any(kind not in last for kind in kinds):
        return None
    inputs = ("draft.layer_types", "target.layer_types", "target.num_kv_shared_layers")
    return Found([last[kind] for kind in kinds], Origin("derived", "last layers with keys of their own", inputs=inputs))


def _on(options: Mapping[str, Found], name: str) -> bool:
    return name in options and options[name].value is True
