"""The shape of a record in memory: what ``speculators.yaml`` says, after ``extends`` and ``use`` are resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specdec.config.findings.diagnostics import Source

Status = Literal["stable", "beta", "deprecated"]
SAVED_TOGETHER = (
    "use the config.json that was saved with these weights"  # the fix of a rule about tensors that has none
)
_ABOUT_TENSORS = re.compile(r"\b(?:has_tensor|tensor_dim|tensor_count|tensor_last)\(")


@dataclass(frozen=True)
class OptionSpec:
    """One option of a speculator."""

    name: str
    types: tuple[str, ...]  # JSON Schema type names, "null" included when the option may be null
    summary: str
    default: Any = None
    required: bool = False
    enum: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    items: Mapping[str, Any] | None = None  # draft-07-safe JSON Schema of list items
    properties: Mapping[str, Any] | None = None  # draft-07-safe JSON Schema of object properties
    unit: str | None = None
    examples: tuple[Any, ...] = ()  # values to show; a new configuration starts from the first
    reason: str | None = None  # why this default
    inherit: str = "never"  # never | target | same_checkpoint: when an absent value is taken from the target
    status: Status = "stable"
    since: str = "0.1"
    aliases: tuple[str, ...] = ()  # older or foreign spellings; using one warns
    engines: Mapping[str, str] = field(default_factory=dict)  # engine -> read | ignored | refused (+ reason)
    references: tuple[str, ...] = ()
    source: Source | None = None


@dataclass(frozen=True)
class FactSpec:
    """A canonical value read from a checkpoint, under whichever key it was written."""

    name: str
    type: str  # integer | number | string | boolean | list<integer> | list<string> | map | any
    keys: tuple[str, ...]  # dotted config.json keys in order of precedence
    default: Any = None
    default_in_speculators_format: Any = None
    has_default: bool = False
    convert: str | None = None  # named conversion, see specdec/config/checkpoint/facts/convert.py
    key_converts: Mapping[str, str] = field(default_factory=dict)  # key -> conversion, where keys differ in convention
    required: bool = False
    minimum: int | None = None  # of an integer
    summary: str = ""
    source: Source | None = None


@dataclass(frozen=True)
class RewriteSpec:
    """One row of the model_type/architecture rewrite table."""

    when: Mapping[str, Any]  # {model_type: [...]} and/or {architecture: [...]} and/or {has: key, positive: key, ...}
    set: Mapping[str, Any] = field(default_factory=dict)
    n_predict: Mapping[str, Any] | None = None  # {key: dotted, default: n} or {constant: n}
    promote: str | None = None  # sub-config that becomes the top level (deep copy)
    copy: Mapping[str, str] = field(default_factory=dict)  # canonical key <- dotted key
    append: Mapping[str, Any] = field(default_factory=dict)  # list key <- {key: dotted, fill: value, count: dotted key}
    final: bool = False  # no later row looks at the result
    errors: tuple[Mapping[str, Any], ...] = ()
    source: Source | None = None


@dataclass(frozen=True)
class RuleSpec:
    """A cross-field check: ``check`` must hold (CEL boolean) when ``when`` holds."""

    id: str
    check: str
    at: str
    message: str  # may contain {expression} placeholders, each a CEL expression
    severity: Literal["error", "warning", "note"] = "error"
    when: str | None = None
    fix: str | None = None
    code: str = ""  # diagnostic code; the id unless several rules report the same kind of fault
    source: Source | None = None

    @property
    def about_tensors(self) -> bool:
        """It asks for tensors of the draft, so it reads facts only and is judged where the checkpoint is inspected."""
        return any(_ABOUT_TENSORS.search(text) for text in (self.when or "", self.check))


@dataclass(frozen=True)
class CapabilityRule:
    """A capability that a checkpoint or an option changes: ``name`` is ``value`` when ``when`` holds."""

    name: str
    value: bool
    when: str  # CEL boolean
    reason: str = ""


@dataclass(frozen=True)
class Specialization:
    """A more specific record that takes over when its condition holds."""

    record: str
    when: str  # CEL boolean over draft.*, options.*, k, target.*


@dataclass(frozen=True)
class Alias:
    """Another name users write for a record."""

    name: str
    deprecated: bool = False
    note: str | None = None
    implies: Mapping[str, Any] = field(default_factory=dict)  # options the name stands for


@dataclass(frozen=True)
class SpeculatorRecord:
    """One speculator, complete: nothing else needs to be looked up to plan or build it."""

    name: str
    title: str
    summary: str
    references: tuple[str, ...]
    status: Status
    since: str
    guarantee: str  # lossless | none (does not draft)
    implementation: str | None  # "package.module:Class"; imported only when the speculator is built
    draft_model: str | None
    engines: Mapping[str, Any]  # embedded: yes | planned; vllm: {method, since, ...}; sglang: {...}
    capabilities: Mapping[str, bool]
    options: Mapping[str, OptionSpec]
    declares: str | None  # CEL boolean over draft.*
    facts: Mapping[str, FactSpec]
    rewrites: tuple[RewriteSpec, ...]
    defaults: Mapping[str, Any]  # option or num_speculative_tokens -> literal | {from: path} | {expr: CEL}
    derive: Mapping[str, str]  # number -> CEL
    hash_factors: tuple[str, ...]
    rules: tuple[RuleSpec, ...]
    resources: Mapping[str, Any]
    extends: tuple[str, ...] = ()  # ancestors, nearest first
    specializations: tuple[Specialization, ...] = ()  # records that take over from this one
    aliases: tuple[Alias, ...] = ()
    tensors: Mapping[str, Any] = field(default_factory=dict)  # what the checkpoint's tensors must look like
    compatibility: Mapping[str, Any] = field(default_factory=dict)  # feature -> {supported, reason, when}
    capability_rules: tuple[CapabilityRule, ...] = ()  # evaluated in order, the last that holds wins
    reasons: Mapping[str, str] = field(default_factory=dict)  # capability -> why it is off, for messages
    accepts: str | None = None  # CEL boolean: named explicitly, it may run a checkpoint that declares something else
    expected_acceptance: tuple[
        Mapping[str, Any], ...
    ] = ()  # published figures: target, prompts, tokens_per_round, source
    fallback: bool = False  # its `declares` counts only when no other record's holds, and never contradicts a method
    origin: str = "built in"  # which file or package brought the record
    source: Source | None = None


@dataclass(frozen=True)
class TargetRecord:
    """What a target model allows or needs."""

    name: str
    match: Mapping[str, Any]  # {model_type: [...], architecture: [...]}
    summary: str = ""
    allowed_methods: tuple[str, ...] | None = None
    denied_methods: tuple[str, ...] = ()
    reason: str = ""
    default_aux_layers: tuple[str, ...] | None = None  # CEL over target.*
    facts: Mapping[str, Any] = field(default_factory=dict)  # e.g. rope_interleaved: true
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[RuleSpec, ...] = ()
    source: Source | None = None


@dataclass(frozen=True)
class KnownFamily:
    """A checkpoint family that is recognised, and refused with a message instead of being misread."""

    name: str
    title: str
    declares: str  # CEL boolean over draft.*
    message: str


@dataclass(frozen=True)
class Feature:
    """An engine feature whose support differs between speculators; ``when`` says that a configuration uses it."""

    name: str
    title: str
    summary: str
    when: str | None = None  # CEL boolean over engine.*, options.*; None: decided per request
    short: str = ""  # heading of its column


@dataclass(frozen=True)
class Variable:
    """A typed name that expressions may use: ``engine.max_num_seqs``, ``draft.max_model_len``."""

    name: str
    type: str  # as FactSpec.type
    summary: str = ""
    default: Any = None  # used by expressions when the resolver has no value
