"""Reading files: scalars of YAML 1.2, positions, guards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.config.read import source
from specdec.config.read.source import Mark, SourceError, load, parse


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs on both parsers of PyYAML."""
    if request.param == "pure":

        class Pure(yaml.SafeLoader):
            yaml_implicit_resolvers = source._Loader.yaml_implicit_resolvers

        monkeypatch.setattr(source, "_Loader", Pure)
    return str(request.param)


def refused(text: str | bytes, tmp_path: Path) -> str:
    """The code of the fault that keeps a text from being read."""
    file = tmp_path / "run.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError) as error:
        load(file)
    return error.value.diagnostic.code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("No", "No"), ("y", "y"), ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("None", "None"), ("010", "010"), ("0o10", 8), ("0x1F", 31), ("1_000", "1_000"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"),
        ("1e-3", 0.001), ("1.", 1.0), (".5", 0.5), ("+3", 3), ("-0", 0), ("1.5E+3", 1500.0), ("'4'", "4"), ('"a\\tb"', "a\tb"), ("=", "="),
        ("9223372036854775807", 2**63 - 1), ("!!str 3", "3"), ("!!float 3", 3.0), ("0b1", "0b1"), ("<<", "<<"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    data = parse(f"a: {text}\n").data["a"]
    assert data == value
    assert type(data) is type(value)


def test_keys_are_texts() -> None:
    assert parse("on: 1\n7: 2\nnull: 3\n").data == {"on": 1, "7": 2, "null": 3}


def test_positions_of_values_and_keys() -> None:
    doc = parse("a:\n  b: [1, {c: 2}]\n  d: 3\n")
    assert doc.mark(("a", "b")) == Mark(2, 6)
    assert doc.mark(("a", "b", 1, "c")) == Mark(2, 14)
    assert doc.mark(("a", "b", 1, "c"), key=True) == Mark(2, 11)
    assert doc.mark(("a", "d"), key=True) == Mark(3, 3)
    assert doc.mark(("a", "missing")) == Mark(2, 3)  # its parent
    assert doc.mark(()) == Mark(1, 1)
    assert doc.source(("a", "d")).text == "  d: 3"
    assert str(doc.source(("a", "d"))) == "<text>:3:6"


def test_merge_keys_keep_the_position_where_a_value_is_written() -> None:
    doc = parse("base: &b {method: ngram, k: 3}\nfast:\n  <<: *b\n  k: 5\nboth:\n  <<: [{x: 1}, *b]\n")
    assert doc.problems == []
    assert doc.data["fast"] == {"method": "ngram", "k": 5}
    assert doc.data["both"] == {"x": 1, "method": "ngram", "k": 3}
    assert doc.mark(("fast", "method")) == Mark(1, 19)
    assert doc.mark(("fast", "k")) == Mark(4, 6)
    assert doc.mark(("both", "k"), key=True) == Mark(1, 26)


def test_aliases_are_copies() -> None:
    data = parse("a: &x {b: 1}\nc: *x\n").data
    data["a"]["b"] = 2
    assert data["c"] == {"b": 1}


def test_duplicate_keys_name_both_lines_and_all_are_reported() -> None:
    doc = parse("k: 1\nm: {a: 1, a: 2}\nk: 2\n")
    assert [(d.code, d.path, d.source.line if d.source else 0) for d in doc.problems] == [
        ("duplicate-key", "m.a", 2),
        ("duplicate-key", "k", 3),
    ]
    assert "line 1" in doc.problems[1].message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: .nan\n", "not-finite"), ("a: -.inf\n", "not-finite"), ("a: 1e999\n", "not-finite"), ("a: 99999999999999999999\n", "out-of-range"),
        ("a: " + "9" * 5000 + "\n", "out-of-range"), ("a: !include x\n", "yaml-tag"), ("a: !!python/object/apply:os.system [x]\n", "yaml-tag"),
        ("a: !!int x\n", "yaml-tag"), ("a: !!binary aGk=\n", "yaml-tag"), ("? [a]\n: 1\n", "yaml-key"), ("a:\n  <<: 3\n", "yaml-key"),
    ],
)  # fmt: skip
def test_faults_with_a_place(text: str, code: str) -> None:
    (problem,) = parse(text).problems
    assert problem.code == code
    assert problem.source is not None and problem.source.line
    assert len(problem.message) < 120


@pytest.mark.parametrize(
    "text",
    ["a: [1,\n", "a: 1\n  b: 2\n", "a: 'x\n", "a: b: c\n", "a: {b: 1\n", "- a\nb: 1\n", "a: *x\n", "a: @x\n", "a: `x`\n", 'a: "\\q"\n', "a: %x\n", "]\n", "&a"],
)  # fmt: skip
def test_syntax_errors_have_a_place_and_a_fix(text: str) -> None:
    try:
        parse(text)
    except SourceError as error:
        found = error.diagnostic
        assert found.code in ("yaml-syntax", "empty-file")
        if found.code == "yaml-syntax":
            assert found.source is not None and found.source.line and found.fix
    else:
        pytest.fail("was read")


def test_a_tab_is_named(loader: str) -> None:
    with pytest.raises(SourceError) as error:
        parse("a:\n\tb: 1\n")
    found = error.value.diagnostic
    assert (found.code, found.source.line if found.source else 0) == ("yaml-tab", 2)


def test_control_characters_are_refused() -> None:
    with pytest.raises(SourceError) as error:
        parse("a: 1\nb: \x01\n")
    assert error.value.diagnostic.code == "yaml-syntax"
    assert "U+0001" in error.value.diagnostic.message


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
    assert refused("", tmp_path) == "empty-file"
    assert refused("# only a comment\n", tmp_path) == "empty-file"
    assert refused("---\n", tmp_path) == "empty-file"
    assert refused("a: 1\n---\nb: 2\n", tmp_path) == "multiple-documents"
    assert refused(bomb, tmp_path) == "alias-bomb"
    assert refused("a: &a [*a]\n", tmp_path) == "alias-bomb"
    monkeypatch.setattr(source, "MAX_NODES", 1000)
    assert refused("x: [" + ", ".join(["1"] * 2000) + "]\n", tmp_path) == "alias-bomb"
    assert refused("[" * 200 + "]" * 200, tmp_path) == "too-deep"
    assert refused(b"a: \xff\xfe\n", tmp_path) == "not-utf-8"
    assert refused("a: b\n".encode("utf-16"), tmp_path) == "not-utf-8"
    assert refused(b"# " + b"x" * 10_000_000, tmp_path) == "file-too-large"
    with pytest.raises(SourceError) as error:
        load(tmp_path)
    assert error.value.diagnostic.code == "is-a-directory"
    with pytest.raises(SourceError) as error:
        load(tmp_path / "a\0b")
    assert error.value.diagnostic.code == "cannot-read"


def test_extreme_nesting_does_not_crash(tmp_path: Path) -> None:
    assert refused("[" * 3_000, tmp_path) in ("too-deep", "yaml-syntax")
    assert refused("- " * 2_000 + "x", tmp_path) in ("too-deep", "yaml-syntax")


def test_a_missing_file_suggests_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("a: 1")
    with pytest.raises(SourceError) as error:
        load(tmp_path / "rnu.yaml")
    assert "rnu.yaml" in error.value.diagnostic.message
    assert "run.yaml" in error.value.diagnostic.message


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=12),
    st.text(st.characters(min_codepoint=0x10000), max_size=4),
)
def test_json_writes_a_character_as_two_escapes(first: str, second: str) -> None:
    """Python's json escapes everything beyond ASCII; what follows on the line keeps its place."""
    value = {"a": first + second, "last": 1}
    text = json.dumps(value)
    document = parse(text, "a.json")
    assert document.data == value
    assert text[document.mark(("last",), key=True).column - 1 :].startswith('"last"')


def test_byte_order_mark_yml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load(tmp_path / "a.yml").data == {"a": 1}
    (tmp_path / "a.json").write_text('{\n\t"a": [1, 2.5, null, true, "x\\n"]\n}\n')
    assert load(tmp_path / "a.json").data == {"a": [1, 2.5, None, True, "x\n"]}


def test_line_breaks_of_yaml_count_as_lines() -> None:
    doc = parse("a: 1\r\nb: 2\rc: x\n")
    assert doc.mark(("c",)) == Mark(3, 4)
    assert doc.line_text(3) == "c: x"
