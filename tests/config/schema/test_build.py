"""The generated JSON Schema: up to date, valid in both drafts, and of the same opinion as everything else that checks."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.config.language.options_model import validate_options
from specdec.config.read.validator import violations
from specdec.config.records.data_files import schema_path
from specdec.config.records.registry import builtin
from specdec.config.records.sections import raw_sections, section_fields, shared_fields
from specdec.config.schema.build import method_names, option_schema, shipped_schema_text
from specdec.config.schema.checker import shipped_checker
from specdec.config.schema.known import METHOD_PREFIX

SCHEMA: dict[str, Any] = json.loads(schema_path("config.schema.json").read_text(encoding="utf-8"))
BOTH_DRAFTS = {  # keywords that mean the same in draft-07 and 2020-12
    "$schema", "title", "description", "type", "properties", "additionalProperties", "definitions", "enum", "default",
    "examples", "minimum", "maximum", "exclusiveMinimum", "items", "minItems", "maxItems", "minLength", "required", "allOf",
    "if", "then", "else", "$ref", "x-specdec",
}  # fmt: skip


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    yield schema
    for keyword, value in schema.items():
        if keyword in ("properties", "definitions"):
            for part in value.values():
                yield from subschemas(part)
        elif keyword in ("items", "if", "then", "else"):
            yield from subschemas(value)
        elif keyword == "allOf":
            for part in value:
                yield from subschemas(part)


def test_the_schema_in_the_repository_is_up_to_date() -> None:
    """``SPECDEC_UPDATE_SCHEMA=1`` rewrites it from the records."""
    text = shipped_schema_text(builtin())
    if os.environ.get("SPECDEC_UPDATE_SCHEMA"):
        schema_path("config.schema.json").write_text(text, encoding="utf-8")
    assert schema_path("config.schema.json").read_text(encoding="utf-8") == text, (
        "run 'make docs', or set SPECDEC_UPDATE_SCHEMA=1, to rewrite it"
    )


def test_it_is_valid_in_both_drafts_and_uses_common_keywords_only() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for part in subschemas(SCHEMA):
        assert set(part) <= BOTH_DRAFTS, set(part) - BOTH_DRAFTS
        if "$ref" in part:
            assert set(part) == {"$ref"}  # draft-07 ignores what stands beside it


def test_every_field_is_documented() -> None:
    for part in SCHEMA["properties"].values():
        assert part.get("description")
        for name, field in part.get("properties", {}).items():
            assert field["description"] and field["title"] == name
    for name, part in SCHEMA["definitions"].items():
        if name.startswith("option_"):
            assert part["description"]


def test_every_method_and_alias_is_allowed_and_branches_to_its_record() -> None:
    known = shipped_checker().known
    allowed = SCHEMA["definitions"]["speculator"]["properties"]["method"]["enum"]
    for name, record in builtin().records.items():
        for written in method_names(record):
            assert written in allowed
            assert known.canonical_method(written) == name
            assert known.canonical_method(written.upper()) == name
        assert set(record.options) <= set(known.methods[name])


def test_shared_fields_stand_in_both_sections() -> None:
    fields = section_fields()
    assert shared_fields() == set(fields["target"]) & set(fields["engine"])
    assert [spec for section in fields.values() for spec in section.values() if not spec.summary.endswith(".")] == []
    keys = {"type", "default", "summary", "enum", "minimum", "maximum", "exclusiveMinimum", "minLength", "items", "properties",
            "unit", "examples", "engines"}  # fmt: skip
    assert [name for section in raw_sections().values() for name, spec in section.items() if set(spec) - keys] == []


def test_section_defaults_are_allowed_by_their_own_schema() -> None:
    for section, fields in section_fields().items():
        for name, spec in fields.items():
            part = SCHEMA["properties"][section]["properties"][name]
            assert not list(violations(part, spec.default, SCHEMA)), (section, name)
            assert not list(violations(part, None, SCHEMA)), (section, name)


# A value near what options take, and far from it
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(-2, 300, allow_nan=False).map(lambda x: round(x, 2)) | st.sampled_from([0.0, 4.0])
    | st.sampled_from(["", "auto", "greedy", "standard", "default", "on", "4", "1e-3", "fp8", "rightmost", "block", "synthetic"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["steps", "topk", "verify_tokens", "method", "x"]), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
OPTIONS = [(name, option) for name, record in builtin().records.items() for option in record.options.values()]
SPECULATORS = {
    part["items"]["$ref"]
    for part in SCHEMA["definitions"].values()
    if "$ref" in part.get("items", {}) and "title" in part
}


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(OPTIONS), VALUES)
def test_schema_and_option_models_agree(option: tuple[str, Any], value: Any) -> None:
    """The JSON Schema of an option and the record's pydantic model accept the same values."""
    method, spec = option
    part = option_schema(spec)
    if part.get("items") == {"$ref": "#/definitions/speculator"}:
        return  # a chain: its links are checked by the schema of speculators
    record = replace(builtin().records[method], options={spec.name: replace(spec, required=False)})
    by_schema = not list(violations(part, value, SCHEMA))
    _, found = validate_options(record, {spec.name: value})
    assert by_schema == (not found), (method, spec.name, value, [d.message for d in found])


CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "schema_version": st.sampled_from([1, 1.0, True, 2, "1", None]),
        "target": st.dictionaries(st.sampled_from(["model", "dtype", "max_model_len", "hf_overrides", "zz"]), VALUES, max_size=3),
        "engine": st.none() | st.dictionaries(st.sampled_from(["seed", "device", "gpu_memory_utilization", "enable_lora"]), VALUES, max_size=3),
        "sampling": st.dictionaries(st.sampled_from(["stop", "top_p", "logit_bias", "stop_token_ids", "bad_words_token_ids"]), VALUES, max_size=3),
        "speculative": st.one_of(
            VALUES,
            st.dictionaries(
                st.sampled_from(["method", "num_speculative_tokens", "model", "tree", "aux_layers", "prompt_lookup_max", "synthetic_acceptance_rates", "zz"]),
                VALUES | st.sampled_from(["ngram", "eagle3", "nextn", "chain"]),
                max_size=4,
            ),
            st.lists(st.fixed_dictionaries({"method": st.sampled_from(["ngram", "eagle3", "eagel"])}, optional={"num_speculative_tokens": VALUES}), max_size=3),
        ),
        "records": VALUES,
        "zz": VALUES,
    },
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(CONFIGS)
def test_our_validator_agrees_with_jsonschema(config: dict[str, Any]) -> None:
    """Same violations at the same places as the reference validators of both drafts."""
    ours = {(v.path, v.keyword) for v in violations(SCHEMA, config, SCHEMA)}
    for validator in (jsonschema.Draft7Validator, jsonschema.Draft202012Validator):
        theirs = {(tuple(e.absolute_path), e.validator) for e in validator(SCHEMA).iter_errors(config)}
        assert ours == theirs


@pytest.mark.parametrize("keyword", ["propertyNames", "not", "contains", "oneOf"])
def test_keywords_of_other_peoples_records_are_not_ignored(keyword: str) -> None:
    part = {
        "propertyNames": {"maxLength": 1},
        "not": {"type": "object"},
        "contains": {"type": "integer"},
        "oneOf": [{"type": "string"}],
    }[keyword]
    value: Any = [] if keyword == "contains" else {"long": 1}
    assert [v.keyword for v in violations({keyword: part}, value, {})] == [keyword] or keyword == "propertyNames"
    assert list(violations({keyword: part}, value, {}))


def test_a_data_check_does_not_change_the_data() -> None:
    data = {"speculative": {"method": "NGRAM", "zz": 1}, "engine": {"seed": "x"}}
    before = copy.deepcopy(data)
    shipped_checker().check(data)
    assert data == before


def test_definitions_are_all_used() -> None:
    used = json.dumps(SCHEMA)
    for name in SCHEMA["definitions"]:
        assert f'#/definitions/{name}"' in used, name
    assert sum(name.startswith(METHOD_PREFIX) for name in SCHEMA["definitions"]) == len(builtin().records)
    assert Path(schema_path("config.schema.json")).exists()


def test_examples_are_allowed_and_every_option_without_a_default_has_one_or_is_plain() -> None:
    for name, option in OPTIONS:
        part = option_schema(option)
        for example in option.examples:
            assert not list(violations(part, example, SCHEMA)), (name, option.name, example)
        structured = {"array", "object"} & set(option.types)
        assert not structured or option.default is not None or option.examples, (name, option.name)
