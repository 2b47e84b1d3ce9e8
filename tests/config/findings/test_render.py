"""Diagnostics as text, JSON and GitHub annotations."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.render import one_line, quote, render_github, render_json, render_text


def finding(
    text: str | None = None, column: int | None = None, message: str = "m", fix: str | None = None, file: str = "f.yaml"
) -> Diagnostic:
    return Diagnostic("wrong-type", "error", "a.b", message, fix, Source("file", file, 2, column, text))


def test_the_caret_underlines_the_word() -> None:
    assert render_text([finding("a: {b: xyz, c: 1}", 8)]).splitlines()[2] == "  |        ^^^"
    assert render_text([finding("a: {b: 'x y', c: 1}", 8)]).splitlines()[2] == "  |        ^^^^^"
    assert render_text([finding("key: 1", 1)]).splitlines()[2] == "  | ^^^"
    assert render_text([finding("a: ", 9)]).splitlines()[2].endswith("^")


def test_wide_and_combining_characters_keep_the_caret_aligned() -> None:
    assert render_text([finding("模型: x", 5)]).splitlines()[2] == "  |       ^"
    assert render_text([finding("e\u0301: x", 5)]).splitlines()[2] == "  |    ^"


def test_long_lines_are_cut_around_the_place() -> None:
    lines = render_text([finding("x" * 500 + " key: 1", 502)]).splitlines()
    assert len(lines[1]) < 130 and "key: 1" in lines[1]
    assert lines[2].index("^") == lines[1].index("key")


def test_findings_without_a_file() -> None:
    assert render_text([Diagnostic("a", "warning", "x.y", "m")]) == "x.y: warning[a]: m"
    assert render_text([Diagnostic("a", "note", "", "m")]) == "note[a]: m"
    checkpoint = Diagnostic("a", "error", "draft.x", "m", None, Source("checkpoint", "d/config.json", None, None, "x"))
    assert render_text([checkpoint]) == "d/config.json: error[a]: m"
    override = Diagnostic("a", "error", "x", "m", "f", Source("command line", None, None, 3, "x=1"))
    assert render_text([override]) == "command line: error[a]: m\n  | x=1\n  |   ^\n  fix: f"


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in render_text([finding()], colour=True)
    assert "\x1b[" not in render_text([finding()])


def test_at_most_the_limit_is_shown() -> None:
    assert render_text([finding()] * 60).endswith("and 10 more")
    assert len(json.loads(render_json([finding()] * 60))["diagnostics"]) == 60


def test_json_counts() -> None:
    warning = Diagnostic("w", "warning", "", "m")
    report = json.loads(render_json([finding(), warning, warning], ["f.yaml"]))
    assert (report["valid"], report["error_count"], report["warning_count"], report["files"]) == (
        False,
        1,
        2,
        ["f.yaml"],
    )
    assert json.loads(render_json([warning]))["valid"] is True


def test_github_escapes() -> None:
    text = render_github([finding(message="100%\nnext", file="a,b:c.yaml", column=3)])
    assert text == "::error file=a%2Cb%3Ac.yaml,line=2,col=3,title=specdec wrong-type::100%25%0Anext"
    assert render_github([Diagnostic("w", "note", "", "m")]) == "::notice title=specdec w::m"


def test_quote() -> None:
    assert [quote(v) for v in (None, True, 3, "x", [1, "a"], {}, {"a": 1})] == [
        "null",
        "true",
        "3",
        "'x'",
        "[1, a]",
        "an empty mapping",
        "a mapping",
    ]
    assert len(quote("x" * 500)) < 70
    assert len(quote(["x" * 50] * 500)) < 250


@given(st.text(max_size=60), st.integers(1, 80))
def test_any_text_renders_on_its_own_lines(text: str, column: int) -> None:
    lines = render_text([finding(text, column, message=text, fix="f")]).split("\n")
    assert 3 <= len(lines) <= 4 and all(line.isprintable() for line in lines)
    assert one_line(text).isprintable()
    assert re.search(r"\^", lines[2])
