"""Expressions of a record that fail at run time are findings, wherever they stand."""

from __future__ import annotations

import pytest
import yaml

import specdec
from specdec.config.records.parse import check_records_file

OPTIONS = {
    "xs": {
        "type": "array",
        "items": {"type": "integer"},
        "default": list(range(20)),
        "summary": "Numbers of the test.",
    },
    "zero": {"type": "integer", "default": 0, "summary": "A number of the test."},
}
NESTED = "options.xs.all(a, options.xs.all(b, options.xs.all(c, options.xs.all(d, options.xs.all(e, a + b + c + d + e >= 0)))))"


def resolved(tmp_path, **record):
    body = {
        "extends": "ngram",
        "title": "Faulty",
        "summary": "A sentence for the test.",
        "options": {"define": OPTIONS},
    }
    records = {"schema_version": 1, "speculators": {"faulty": {**body, **record}}}
    (tmp_path / "records.yaml").write_text(yaml.safe_dump(records))
    engine = {"enable_lora": True} if "compatibility" in record else {}
    document = {"records": [str(tmp_path / "records.yaml")], "engine": engine}
    return specdec.resolve({**document, "speculative": {"method": "faulty", "num_speculative_tokens": 3}})


def rule(check, message="this went wrong", fix="do it otherwise", name="faulty-rule"):
    return {"id": name, "check": check, "at": "speculative.method", "message": message, "fix": fix}


@pytest.mark.parametrize("check", [NESTED, "10 / options.zero > 1", "options.xs[100] > 1", "k % options.zero == 0"])
def test_rules(tmp_path, check):
    (error,) = resolved(tmp_path, rules={"define": [rule(check)]}).errors
    assert error.code == "record-expression" and "faulty-rule" in error.message


def test_each_rule_is_told(tmp_path):
    rules = [rule("10 / options.zero > 1", name="one"), rule("options.xs[100] > 1", name="two")]
    errors = resolved(tmp_path, rules={"define": rules}).errors
    assert [name for e in errors for name in ("'one'", "'two'") if name in e.message] == ["'one'", "'two'"]


@pytest.mark.parametrize(
    "record",
    [
        {"derive": {"num_lookahead_tokens": "k / options.zero"}},
        {
            "capabilities": {
                "supports_pcp": {"value": True, "except": [{"when": "10 / options.zero > 1", "reason": "why"}]}
            }
        },
        {"compatibility": {"lora": {"supported": True, "when": "1 / options.zero > 0", "reason": "no reason"}}},
        {"rules": {"define": [rule("k > 100", message="value {1 / options.zero} is bad")]}},
        {"rules": {"define": [rule("k > 100", fix="do {k / options.zero}")]}},
    ],
    ids=lambda record: next(iter(record)),
)
def test_other_places(tmp_path, record):
    resolution = resolved(tmp_path, **record)  # never raises
    assert resolution.config is not None or resolution.errors


@pytest.mark.parametrize("kind", [[], ["null"], ["null", "null"], ["integer", "integer"], "nope", 5, None, {}])
def test_types_that_say_nothing(tmp_path, kind):
    option = {"type": kind, "default": 0, "summary": "A number of the test."}
    body = {
        "extends": "ngram",
        "title": "Faulty",
        "summary": "A sentence for the test.",
        "options": {"define": {"x": option}},
    }
    (tmp_path / "records.yaml").write_text(yaml.safe_dump({"schema_version": 1, "speculators": {"faulty": body}}))
    found = check_records_file(tmp_path / "records.yaml")
    assert found and all(d.source is not None and d.source.line for d in found)
