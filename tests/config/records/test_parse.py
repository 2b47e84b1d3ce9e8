"""The built-in records keep their contract, and a broken record is located."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from specdec.config.records import text as records_text
from specdec.config.records import third_party as extend
from specdec.config.records.data_files import data_file
from specdec.config.records.parse import check_records_file, schema
from specdec.config.records.registry import builtin

NAMES = [
    "ngram", "suffix", "domino", "draft_model", "pard", "eagle", "eagle3", "peagle", "mtp", "multi_module_mtp", "gemma4", "medusa", "mlp_speculator",
    "dflash", "dflash2", "dspark", "xpress", "lilicorr", "extract_hidden_states", "chain",
]  # fmt: skip


UNITLESS = {"suffix_decoding_max_spec_factor"}  # tokens per token


def test_the_built_in_records_have_no_finding() -> None:
    assert check_records_file(data_file("speculators.yaml")) == []


def test_every_speculator_has_a_record() -> None:
    assert sorted(builtin().records) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_carries_everything(name: str) -> None:
    record = builtin().records[name]
    assert record.title and record.summary.endswith(".") and record.references
    assert record.implementation and set(record.engines) >= {"embedded", "vllm", "sglang"}
    assert all(option.summary.endswith(".") and option.types for option in record.options.values())
    assert all(fact.summary for fact in record.facts.values())
    assert all(rule.message and rule.at and rule.fix for rule in record.rules), [
        r.id for r in record.rules if not r.fix
    ]
    assert {"verify_width", "num_lookahead_tokens", "num_prefill_lookahead_tokens"} <= set(record.derive)


FLAGS = (
    "uses_target_hidden_states", "uses_aux_hidden_states", "uses_separate_workspace_lane", "prefer_dense_token_history",
    "proposes_draft_tokens", "adaptive_verification_uses_draft_logits", "draft_has_own_vocab", "supports_watermarking",
    "supports_pcp", "shares_target_positions",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_the_contract_has_a_value(name: str) -> None:
    """Status, version, flags, options with unit, rule of inheritance and effect in every engine, hash factors, memory."""
    record = builtin().records[name]
    assert record.status in ("stable", "beta", "deprecated") and record.since
    assert set(FLAGS) <= set(record.capabilities) and all(isinstance(v, bool) for v in record.capabilities.values())
    for option in record.options.values():
        assert option.inherit in ("never", "target", "same_checkpoint"), option.name
        assert set(option.engines) <= {"embedded", "vllm", "sglang"}
        assert all(effect.startswith(("read", "ignored", "refused")) for effect in option.engines.values())
        counts = {"integer", "number"} & set(option.types) and not option.enum
        assert option.unit or not counts or option.name in UNITLESS, f"{option.name} counts what?"
    takes_draft = "model" in record.options
    assert record.hash_factors or record.capabilities["combines_speculators"]
    assert not takes_draft or {"draft_weight_bytes"} <= set(record.resources)
    taken_over = [s for other in builtin().records.values() for s in other.specializations if s.record == name]
    assert not takes_draft or ((record.declares or taken_over) and record.facts)
    assert not record.capabilities["has_own_kv"] or not takes_draft or "draft_kv_bytes_per_token" in record.resources
    assert (
        not record.capabilities["needs_draft_checkpoint"]
        or record.draft_model
        or record.capabilities["has_own_language_model"]
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_word_embedded_says_whether_the_class_exists(name: str) -> None:
    record = builtin().records[name]
    module, _, class_name = str(record.implementation).partition(":")
    file = extend.module_file(module)
    present = file is not None and extend.class_methods(file, class_name) is not None
    assert record.engines["embedded"] == ("yes" if present else "planned"), (
        f"{record.implementation} present: {present}"
    )


def test_the_schema_is_valid_and_documents_every_field() -> None:
    Draft7Validator.check_schema(schema())
    undocumented = [path for path, part in _fields(schema(), "") if not _documented(part)]
    assert undocumented == []


def _fields(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        for name, field in part.get("properties", {}).items() if isinstance(part.get("properties"), dict) else ():
            if isinstance(field, dict) and ("type" in field or "$ref" in field or "enum" in field or "const" in field):
                yield f"{path}.{name}", field
        for key, inner in part.items():
            yield from _fields(inner, f"{path}.{key}")


def _documented(field: dict[str, Any]) -> bool:
    if "description" in field:
        return True
    referred = schema()["definitions"].get(str(field.get("$ref", "")).rsplit("/", 1)[-1], {})
    return "description" in referred


def test_the_schema_uses_only_keywords_that_editors_read_alike() -> None:
    forbidden = {"oneOf", "anyOf", "allOf", "$defs", "unevaluatedProperties", "dependentRequired", "prefixItems"}
    assert not forbidden & set(_keywords(schema()))


def _keywords(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, inner in part.items():
            yield key
            yield from _keywords(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _keywords(inner)


def test_numbers_are_read_like_yaml_1_2() -> None:
    text = records_text.parse("schema_version: 1\nspeculators:\n  a: {title: On, summary: yes, since: 0o7}\n")
    assert text.value["speculators"]["a"]["summary"] == "yes"


HEAD = "schema_version: 1\nspeculators:\n  mine:\n    title: Mine\n    summary: My own.\n    extends: ngram\n"
BROKEN = {
    "unknown key": ("    titel: x\n", "unknown-key", 7, 5, "title"),
    "wrong type": ("    references: here\n", "wrong-type", 7, 17, "here"),
    "bad status": ("    status: great\n", "wrong-value", 7, 13, "great"),
    "unknown capability": ("    capabilities: {uses_target_hidden_state: true}\n", "unknown-key", 7, 20, "uses_target_hidden_states"),
    "unknown name": ("    derive: {num_lookahead_tokens: k + draft.blok_size}\n", "unknown-name", 7, 40, "draft.blok_size"),
    "unknown option": ('    derive: {num_lookahead_tokens: "options.prompt_lookup_maxx"}\n', "unknown-name", 7, 37, "prompt_lookup_max"),
    "type mistake": ("    derive: {num_lookahead_tokens: \"k + 'a'\"}\n", "expression-type", 7, 39, "string"),
    "number that is none": ('    derive: {num_lookahead_tokens: "k > 1"}\n', "expression-type", 7, 37, "integer"),
    "syntax": ('    derive: {num_lookahead_tokens: "k + "}\n', "expression-syntax", 7, 41, "Syntax"),
    "rule that is no condition": (
        "    rules:\n      define:\n        - {id: a, check: k + 1, at: speculative, message: no, fix: no}\n",
        "expression-type", 9, 26, "true or false",
    ),
    "message with an unknown name": (
        '    rules:\n      define:\n        - {id: a, check: k > 0, at: speculative, message: "k {kk}", fix: no}\n',
        "unknown-name", 9, 63, "kk",
    ),
    "unknown parent": ("    specializes: {ngrm: k > 1}\n", "unknown-record", 7, 19, "ngrm"),
    "unknown set": ("    options: {use: [verifcation]}\n", "unknown-set", 7, 21, "verification"),
    "dropped nothing": ("    options: {drop: [modell]}\n", "unknown-entry", 7, 22, "modell"),
    "default out of range": ("    options: {define: {prompt_lookup_max: {default: 0}}}\n", "wrong-value", 7, 24, "at least 1"),
    "default without option": ("    defaults: {prompt_lookup_top: 3}\n", "unknown-key", 7, 16, "prompt_lookup_top"),
    "default from nowhere": ("    defaults: {prompt_lookup_max: {from: [draft.block]}}\n", "unknown-name", 7, 16, "draft.block"),
    "hash factor of nothing": ("    hash_factors: [options.modell]\n", "unknown-name", 7, 20, "options.modell"),
    "option that inherited rules need": ("    options: {drop: [prompt_lookup_min]}\n", "unknown-name", 3, 3, "min-greater-than-max"),
    "class as a path": ("    implementation: my/module.py\n", "wrong-value", 7, 21, "my/module.py"),
    "duplicate key": ("    title: Again\n", "duplicate-key", 7, 5, "title"),
    "not YAML": ("    title: 'open\n", "yaml-syntax", None, None, "quote"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_record_is_located(case: str, tmp_path: Any) -> None:
    text, code, line, column, says = BROKEN[case]
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + text)
    found = check_records_file(file)
    assert code in [d.code for d in found], found
    finding = next(d for d in found if d.code == code)
    assert says in f"{finding.message} {finding.fix}"
    assert finding.source is not None and finding.source.file == str(file)
    if line is not None:
        assert (finding.source.line, finding.source.column) == (line, column)


def test_a_record_that_extends_itself_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "loop.yaml"
    one = "schema_version: 1\nspeculators:\n  a: {title: AA, summary: One., extends: b}\n  b: {title: BB, summary: Two., extends: a}\n"
    file.write_text(one)
    assert "extends-cycle" in [d.code for d in check_records_file(file)]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"- a\n- b\n", b"schema_version: 2\n", b"{}"])
def test_a_file_that_is_no_records_file_ends_in_findings(content: bytes, tmp_path: Any) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    assert check_records_file(file)
