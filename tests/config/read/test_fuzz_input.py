"""Arbitrary text, bytes and overrides end in findings, never in an exception."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.config.findings.render import render_github, render_json, render_text
from specdec.config.read.override_syntax import parse_override
from specdec.config.read.overrides import OverrideError, apply_overrides, expand_sweep
from specdec.config.read.source import SourceError, parse, parse_bytes
from specdec.config.schema.checker import check_document

WORDS = st.sampled_from(
    ["speculative", "method", "ngram", "engine", "seed", ":", ": ", "- ", "\n", "\n  ", "{", "}", "[", "]", ",", "&a ", "*a", "<<", "'", '"', "!!int ", "? ", "|", ">",
     "#", "%", "\t", "...", "---", "null", "3", ".nan", "0o7", "\u2028", "é", "\\", "=", "~", "${", "@", "`"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=25).map("".join) | st.text(max_size=40)
KEYS = st.sampled_from(
    [
        "speculative",
        "speculative.method",
        "engine.seed",
        "engine",
        "a.b.c",
        "",
        "metadata.x",
        "speculative.0.x",
        "target.hf_overrides",
        "records",
        "hydra.x",
        "x@y",
    ]
)
OVERRIDES = st.builds(
    lambda sign, key, equals, value: sign + key + equals + value, st.sampled_from(["", "+", "++", "~"]), KEYS, st.sampled_from(["=", "=", "=", ""]), TEXTS
)  # fmt: skip
FILES = st.sampled_from(
    [
        {},
        {"engine": {"seed": 1}},
        {"speculative": [{"method": "ngram"}]},
        {"speculative": "x", "engine": None},
        {"metadata": {"x": [1]}},
    ]
)


@settings(max_examples=600, deadline=None)
@given(TEXTS)
def test_any_text_can_be_checked(text: str) -> None:
    try:
        found = check_document(parse(text, "f.yaml"))
    except SourceError as error:
        found = [error.diagnostic]
    assert all(d.source is not None and d.message for d in found)
    render_text(found), render_json(found), render_github(found)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(raw: bytes) -> None:
    try:
        parse_bytes(raw, "f.yaml")
    except SourceError as error:
        assert error.diagnostic.source is not None


@settings(max_examples=500, deadline=None)
@given(OVERRIDES)
def test_any_override_parses_or_is_refused(text: str) -> None:
    override, wrong = parse_override(text)
    assert (override is None) != (wrong is None)
    try:
        assert expand_sweep([text], ["ngram", "mtp"])
    except OverrideError as error:
        assert error.diagnostics


@settings(max_examples=40, deadline=None)
@given(FILES, st.lists(OVERRIDES, min_size=1, max_size=2))
def test_any_override_can_be_applied_to_any_file(data: dict[str, object], overrides: list[str]) -> None:
    result, _, found = apply_overrides(data, overrides, ["ngram", "mtp"])
    assert found or isinstance(result, dict)
