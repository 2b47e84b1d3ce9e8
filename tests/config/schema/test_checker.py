"""Findings of the schema check: one for each fault, at its place, from the branch of the method only."""

from __future__ import annotations

from typing import Any

import pytest

from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.read.source import parse
from specdec.config.schema.checker import check_document, checker_for, is_records_file, shipped_checker, unique


def found(text: str) -> list[tuple[str, str]]:
    return [(d.code, d.path) for d in check_document(parse(text))]


def one(text: str) -> Diagnostic:
    (diagnostic,) = check_document(parse(text))
    return diagnostic


def test_one_finding_for_each_unknown_key_at_the_key() -> None:
    diagnostics = check_document(parse("engine:\n  sed: 1\n  max_num_seq: 2\nspeculatve: {}\n"))
    assert [(d.code, d.path, d.source.line, d.source.column) for d in diagnostics if d.source] == [
        ("unknown-key", "engine.sed", 2, 3),
        ("unknown-key", "engine.max_num_seq", 3, 3),
        ("unknown-key", "speculatve", 4, 1),
    ]
    assert [d.fix for d in diagnostics] == [
        "did you mean 'seed'?",
        "did you mean 'max_num_seqs'?",
        "did you mean 'speculative'?",
    ]


def test_only_the_branch_of_the_method_reports() -> None:
    text = "speculative:\n- {method: ngram, num_speculative_tokens: 3}\n- {method: eagle3, num_speculative_tokens: three, model: ./d}\n"
    assert found(text) == [("wrong-type", "speculative[1].num_speculative_tokens")]


def test_a_wrong_method_does_not_make_every_option_wrong() -> None:
    text = "speculative: {method: egale3, model: ./d, prompt_lookup_max: 3, draft_sample_methd: greedy}\n"
    assert found(text) == [("unknown-method", "speculative.method"), ("unknown-key", "speculative.draft_sample_methd")]


def test_an_option_of_another_method_names_its_readers() -> None:
    diagnostic = one("speculative: {method: ngram, num_speculative_tokens: 2, dspark_draft_topk: 3}\n")
    assert diagnostic.code == "unknown-key"
    assert "read by dspark" in diagnostic.message


def test_null_equals_absent_everywhere() -> None:
    text = "target: null\nengine: {seed: null}\nspeculative: {method: null, num_speculative_tokens: null, model: null}\nrecords: null\nsampling: null\n"
    assert found(text) == []
    assert found("speculative: {method: eagle, model: ./d, tree: {steps: 1, topk: null}}\n") == []


def test_method_names_ignore_case() -> None:
    assert found("speculative: {method: NEXTN, num_speculative_tokens: 1}\n") == []
    assert found("speculative: {method: Ngram, dspark_draft_topk: 1}\n") == [
        ("unknown-key", "speculative.dspark_draft_topk")
    ]


def test_partial_data_lacks_nothing() -> None:
    data = {"speculative": {"method": "eagle3"}}
    assert [d.code for d in shipped_checker().check(data)] == ["missing-required"]
    assert shipped_checker().check(data, partial=True) == []


def test_places_with_a_reading_fault_are_not_reported_again() -> None:
    assert found("engine: {seed: .nan, max_num_seqs: 99999999999999999999}\n") == [
        ("not-finite", "engine.seed"),
        ("out-of-range", "engine.max_num_seqs"),
    ]


def test_data_without_a_file_has_findings_without_a_place() -> None:
    (diagnostic,) = shipped_checker().check({"engine": {"seed": "x"}})
    assert diagnostic.source is None and diagnostic.path == "engine.seed"


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        "x",
        [],
        {"speculative": 3},
        {"speculative": [3]},
        {"engine": []},
        {1: 2},
        {"speculative": {"method": {}}},
    ],
)
def test_no_data_breaks_the_check(data: Any) -> None:
    assert shipped_checker().check(data) != [] or data == {}


def test_known_methods_need_no_records() -> None:
    data = {"speculative": {"method": "ngram"}}
    assert checker_for(data) == (shipped_checker(), [])


def test_records_files_are_recognised() -> None:
    assert is_records_file({"schema_version": 1, "speculators": {}})
    assert not is_records_file({"speculative": {}})
    assert not is_records_file([])


def test_unique_keeps_the_first_of_each_place() -> None:
    a, b = Diagnostic("wrong-type", "error", "x", "one"), Diagnostic("wrong-type", "error", "x", "two")
    assert unique([a, b, a]) == [a]


def test_two_thousand_faults_are_fast_enough_to_wait_for() -> None:
    text = "engine:\n" + "".join(f"  zz{i}: 1\n" for i in range(2000))
    assert len(found(text)) == 2000
