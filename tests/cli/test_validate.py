"""``specdec validate`` and ``specdec schema`` as a person and a pipeline see them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from specdec.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GOOD = "speculative: {method: ngram, num_speculative_tokens: 4}\n"
BAD = "speculative:\n  method: ngram\n  num_speculatve_tokens: 4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


def test_good_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "good.yaml"]) == 0
    assert capsys.readouterr().out == "good.yaml: valid\n"
    assert main(["validate", "-q", "good.yaml"]) == 0
    assert capsys.readouterr().out == ""
    files = sorted(str(file) for file in (EXAMPLES / "good").iterdir())
    assert main(["validate", *files]) == 0
    assert capsys.readouterr().out == f"{len(files)} files: valid\n"


def test_every_bad_example_is_found_bad(capsys: pytest.CaptureFixture[str]) -> None:
    for file in sorted((EXAMPLES / "bad").iterdir()):
        expected = 0 if file.stem == "method-deprecated" else 1  # a warning
        assert main(["validate", str(file)]) == expected, file
        assert f"{file}:" in capsys.readouterr().out


def test_text_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "bad.yaml"]) == 1
    out = capsys.readouterr().out
    assert out == (
        "bad.yaml:3:3: error[unknown-key]: 'num_speculatve_tokens' is not an option of ngram\n"
        "  |   num_speculatve_tokens: 4\n"
        "  |   ^^^^^^^^^^^^^^^^^^^^^\n"
        "  fix: did you mean 'num_speculative_tokens'?\n"
    )


def test_json_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "good.yaml", "bad.yaml", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["format_version"] == 1
    assert (report["valid"], report["error_count"], report["warning_count"]) == (False, 1, 0)
    assert report["files"] == ["good.yaml", "bad.yaml"]
    (found,) = report["diagnostics"]
    assert found == {
        "code": "unknown-key",
        "severity": "error",
        "path": "speculative.num_speculatve_tokens",
        "message": "'num_speculatve_tokens' is not an option of ngram",
        "fix": "did you mean 'num_speculative_tokens'?",
        "source": {"kind": "file", "file": "bad.yaml", "line": 3, "column": 3, "text": "  num_speculatve_tokens: 4"},
    }
    assert main(["validate", "good.yaml", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_github_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "bad.yaml", "good.yaml", "--format", "github"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "::error file=bad.yaml,line=3,col=3,title=specdec unknown-key::'num_speculatve_tokens' is not an option of ngram"
        "%0Afix: did you mean 'num_speculative_tokens'?"
    ]


def test_overrides_before_and_after_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "good.yaml", "speculative.num_speculative_tokens=5"]) == 0
    assert main(["validate", "engine.seed=1", "good.yaml", "-q"]) == 0
    assert main(["validate", "bad.yaml", "~speculative.num_speculatve_tokens"]) == 0
    capsys.readouterr()
    assert main(["validate", "good.yaml", "+speculative.num_speculatve_tokens=4"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("command line: error[unknown-key]")
    assert "did you mean 'speculative.num_speculative_tokens'?" in out


def test_a_file_whose_name_looks_like_an_override(folder: Path) -> None:
    (folder / "a=b.yaml").write_text(GOOD)
    assert main(["validate", "a=b.yaml"]) == 0


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("empty.yaml", b"", "empty-file"),
        ("two.yaml", b"a: 1\n---\nb: 1\n", "multiple-documents"),
        ("latin.yaml", b"a: \xe9\n", "not-utf-8"),
        ("large.yaml", b"#" * 10_000_000, "file-too-large"),
        (
            "bomb.yaml",
            b"a: &a [x, x]\n"
            + b"".join(
                b"b%d: &b%d [*%s]\n" % (i, i, b", *".join([b"b%d" % (i - 1) if i else b"a"] * 9)) for i in range(12)
            ),
            "alias-bomb",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, code: str
) -> None:
    (folder / name).write_bytes(content)
    assert main(["validate", name]) == 2
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1 and len(out) < 200
    assert out.startswith(f"{name}: error[{code}]: ")


def test_missing_files_and_directories(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "godo.yaml"]) == 2
    assert (
        capsys.readouterr().out == "godo.yaml: error[file-not-found]: no file 'godo.yaml'; did you mean 'good.yaml'?\n"
    )
    assert main(["validate", "."]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["validate", "nowhere/x.yaml", "bad.yaml"]) == 2  # the other file is still checked
    assert "unknown-key" in capsys.readouterr().out
    assert main(["validate"]) == 2
    assert "no file given" in capsys.readouterr().err


def test_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for text, code in ((GOOD, 0), (BAD, 1), ("", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["validate", "-"]) == code
    assert "<stdin>:3:3: error" in capsys.readouterr().out


def test_warnings_and_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "old.yaml").write_text("speculative: {method: deepseek_mtp}\n")
    assert main(["validate", "old.yaml"]) == 0
    assert "warning[deprecated-alias]" in capsys.readouterr().out
    assert main(["validate", "old.yaml", "--strict"]) == 1


def test_at_most_fifty_findings_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "many.yaml").write_text("engine:\n" + "".join(f"  zz{i}: 1\n" for i in range(2000)))
    assert main(["validate", "many.yaml"]) == 1
    out = capsys.readouterr().out
    assert len(re.findall("error\\[", out)) == 50
    assert out.endswith("and 1950 more\n")


def test_user_text_cannot_steer_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "escape.yaml").write_text('speculative: {method: "ngram\\u001b[31m\\u202e"}\n')
    assert main(["validate", "escape.yaml"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out


def test_records_files_and_records_of_the_user(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.yaml").write_text(
        "schema_version: 1\nspeculators:\n  long_ngram:\n    extends: ngram\n    title: Long n-grams\n    summary: Prompt lookup with long matches.\n"
    )
    assert main(["validate", "mine.yaml"]) == 0, capsys.readouterr().out
    (folder / "run.yaml").write_text(
        "records: [mine.yaml]\nspeculative: {method: long_ngram, num_speculative_tokens: 3, prompt_lookup_mx: 3}\n"
    )
    capsys.readouterr()
    assert main(["validate", "run.yaml"]) == 1
    assert "'prompt_lookup_mx' is not an option of long_ngram" in capsys.readouterr().out
    (folder / "run.yaml").write_text("records: [nowhere.yaml]\nspeculative: {method: ngram}\n")
    assert main(["validate", "run.yaml"]) == 2
    assert "file-not-found" in capsys.readouterr().out


def test_schema_is_printed_and_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["title"] == "specdec configuration"
    assert main(["schema", "-o", "x.json"]) == 0
    assert (folder / "x.json").read_text() == text
    assert main(["schema", "--path"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text() == text
    assert main(["schema", "--all"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"] == json.loads(text)["properties"]
    assert main(["schema", "--records"]) == 0
    assert "speculators" in json.loads(capsys.readouterr().out)["properties"]
    assert main(["schema", "-o", "no/such/folder/x.json"]) == 2
