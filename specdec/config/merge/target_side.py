"""The target: its checkpoint under the user's overrides, its facts, and its settings with their final values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.config.checkpoint import Checkpoint, detect, in_speculators_format, load_checkpoint, read_target_facts
from specdec.config.checkpoint.checks.agreement import disagreements
from specdec.config.checkpoint.facts.canonical import positions_of
from specdec.config.checkpoint.facts.keys import lookup
from specdec.config.checkpoint.facts.target_facts import TARGET_FACTS, check_target
from specdec.config.checkpoint.files.bounds import bounded
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.value import Role
from specdec.config.findings.diagnostics import Diagnostic, Found, Origin
from specdec.config.merge.config_overrides import overridden_fact, override_config
from specdec.config.merge.method import as_unknown
from specdec.config.merge.ranks import with_beaten
from specdec.config.merge.settings import Settings
from specdec.config.read.inputs import shown

VERIFIER = "speculators_config.verifier.name_or_path"
AUTO = "auto"
POSITIONS = "max_position_embeddings"


@dataclass(frozen=True)
class Target:
    """``speculators`` is a checkpoint that names its own target and was given in the target's place: it is the draft."""

    checkpoint: Checkpoint | None
    facts: Mapping[str, Found] = field(default_factory=dict)
    settings: Mapping[str, Found] = field(default_factory=dict)
    speculators: Checkpoint | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def given_checkpoint(config: Any, tensors: Any, role: Role) -> tuple[Checkpoint | None, list[Diagnostic]]:
    """A checkpoint from the caller's ``config.json`` contents and tensor shapes; wrong shapes of input are findings."""
    if config is None:
        return None, []
    if isinstance(config, Checkpoint):
        return replace(config, role=role), []
    if not isinstance(config, Mapping):
        message = f"the {role}'s config.json must be a mapping, not {shown(config)}"
        return None, [Diagnostic("wrong-type", "error", role, message, "give the contents of config.json")]
    try:
        bounded(config, f"the {role}'s config.json")
    except CheckpointFault as fault:
        return None, [
            Diagnostic("checkpoint-unreadable", "error", role, str(fault), "give the contents of config.json")
        ]
    shapes, findings = tensor_shapes(tensors, role)
    text_keys = {str(k): v for k, v in config.items()}
    if text_keys.get("architectures") is not None and not _texts(text_keys["architectures"]):
        message = f"architectures is {shown(text_keys['architectures'])}, expected a list of strings"
        findings.append(Diagnostic("wrong-type", "error", f"{role}.architectures", message, "correct the config.json"))
    return Checkpoint.from_parts(text_keys, shapes, role), findings


def tensor_shapes(tensors: Any, role: Role) -> tuple[dict[str, Sequence[int]] | None, list[Diagnostic]]:
    """Name -> shape; entries that are no shapes are findings and left out."""
    if tensors is None:
        return None, []
    if not isinstance(tensors, Mapping):
        message = f"{role}_tensors must map tensor names to shapes, not {shown(tensors)}"
        return None, [Diagnostic("wrong-type", "error", role, message, 'give {"fc.weight": [64, 128]}')]
    shapes: dict[str, Sequence[int]] = {}
    findings = []
    for name, shape in tensors.items():
        if isinstance(shape, (list, tuple)) and all(type(n) is int and n >= 0 for n in shape):
            shapes[str(name)] = shape
        else:
            message = f"the shape of {name} is {shown(shape)}, expected a list of sizes"
            findings.append(Diagnostic("wrong-type", "error", f"{role}.{name}", message, "give a list of integers"))
    return shapes, findings


def read_target(settings: Settings, given: Checkpoint | None, registry: Any) -> Target:
    """From the given config, else from ``target.model``, with ``hf_overrides`` applied before anything is read."""
    checkpoint, findings = given, list[Diagnostic]()
    model = settings.value("target", "model")
    if checkpoint is None and model is not None:
        checkpoint, findings = load_checkpoint(model, role="target")
        findings = [as_unknown(d) for d in findings]
    speculators = None
    located = dict(settings.target)
    if checkpoint is not None and in_speculators_format(checkpoint):
        speculators = checkpoint
        verifier = lookup(checkpoint.config, VERIFIER)
        checkpoint = None
        if isinstance(verifier, str):
            origin = with_beaten(
                Origin("checkpoint", VERIFIER), [(located["model"].origin, model)] if "model" in located else []
            )
            located["model"] = Found(verifier, origin)
            checkpoint, more = load_checkpoint(verifier, role="target")
            findings += [as_unknown(d) for d in more]
    overrides = settings.target.get("hf_overrides")
    if checkpoint is not None and overrides is not None:
        checkpoint = checkpoint.with_config(override_config(checkpoint.config, overrides.value))
    facts, wrong = read_target_facts(checkpoint, registry)
    findings += [*wrong, *check_target(checkpoint, facts)]
    if checkpoint is not None:
        findings += disagreements(registry.fact_sets.get(TARGET_FACTS, {}).values(), checkpoint)
    if overrides is not None:
        facts = {name: overridden_fact(found, overrides) for name, found in facts.items()}
    return Target(checkpoint, facts, final_settings(located, facts), speculators, tuple(findings))


def check_is_target(target: Target, registry: Any) -> list[Diagnostic]:
    """One error for a checkpoint that declares itself a draft which needs a target of its own."""
    found = detect(registry, target.checkpoint) if target.checkpoint is not None else None
    if found is None or found.record is None or found.fallback:
        return []
    wants = registry.records[found.record].capabilities
    if not wants.get("needs_draft_checkpoint") or wants.get("draft_defaults_to_target"):
        return []
    message = f"this checkpoint is a draft of method {found.record} ({', '.join(found.evidence)}), not a target"
    model = target.settings.get("model")
    source = model.origin.source if model else None
    fix = "name the target here and the draft as speculative.model"
    return [Diagnostic("target-is-a-draft", "error", "target.model", message, fix, source)]


def final_settings(written: Mapping[str, Found], facts: Mapping[str, Found]) -> dict[str, Found]:
    """What was written, completed by what the config says: dtype, quantization, length, attention backend."""
    final = dict(written)
    for name, fact in (
        ("dtype", "torch_dtype"),
        ("quantization", "quant_method"),
        ("max_model_len", POSITIONS),
    ):
        own, stated = written.get(name), positions_of(facts, "target") if fact == POSITIONS else facts.get(fact)
        if stated is not None and (own is None or own.value == AUTO):
            final[name] = stated
    final.setdefault("attention_backend", Found(AUTO, Origin("engine", "default")))
    final["attention"] = attention_of(facts, "target") or Found("dense", Origin("engine", "default"))
    return final


def attention_of(facts: Mapping[str, Found], role: str) -> Found | None:
    """``mla`` or ``dense``: as stated, else by the width of a latent KV, else dense when KV heads are stated."""
    stated = facts.get("attention")
    if stated is not None:
        return stated
    if "kv_lora_rank" in facts:
        return Found("mla", Origin("derived", "kv_lora_rank is set", inputs=(f"{role}.kv_lora_rank",)))
    heads = facts.get("num_key_value_heads")
    if heads is not None:
        return Found("dense", Origin("derived", "no kv_lora_rank", inputs=(f"{role}.num_key_value_heads",)))
    return None


def check_kv_dtype(target: Target) -> list[Diagnostic]:
    """A KV layout of latent attention on a target that says it has none."""
    kind, attention = target.settings.get("kv_cache_dtype"), target.settings.get("attention")
    if kind is None or attention is None or attention.origin.kind == "engine":
        return []
    if not str(kind.value).endswith("_mla") or attention.value == "mla":
        return []
    message = f"{kind.value} stores latent attention (MLA), and the target's attention is {attention.value}"
    at = kind.origin.detail if kind.origin.detail.endswith("kv_cache_dtype") else "engine.kv_cache_dtype"
    return [Diagnostic("kv-dtype-not-for-target", "error", at, message, f"set {at}=auto", kind.origin.source)]


def check_length(target: Target) -> list[Diagnostic]:
    """A warning when more tokens are served than the target's config has positions for."""
    served, positions = target.settings.get("max_model_len"), positions_of(target.facts, "target")
    if served is None or positions is None or served.value <= positions.value:
        return []
    message = f"max_model_len is {served.value}, above the target's max_position_embeddings, {positions.value}"
    message += f" ({positions.origin.detail})" if positions.origin.kind == "derived" else ""
    fix = f"lower it to {positions.value}, or say how positions are extended with target.hf_overrides (rope_scaling)"
    return [
        Diagnostic("target-positions-exceeded", "warning", served.origin.detail, message, fix, served.origin.source)
    ]


def check_parallel(target: Target) -> list[Diagnostic]:
    """The target's attention heads must split over its devices."""
    devices, heads = target.settings.get("tensor_parallel_size"), target.facts.get("num_attention_heads")
    if devices is None or heads is None or heads.value % devices.value == 0:
        return []
    message = (
        f"the target has {heads.value} attention heads, which do not split over tensor_parallel_size {devices.value}"
    )
    fits = [n for n in range(1, devices.value) if heads.value % n == 0]
    fix = f"set tensor_parallel_size to {fits[-1] if fits else 1}"
    return [
        Diagnostic("heads-not-divisible", "error", "engine.tensor_parallel_size", message, fix, devices.origin.source)
    ]


def _texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)
