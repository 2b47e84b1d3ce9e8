"""The docs are true: examples resolve, code runs, links lead somewhere, generated parts are fresh."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from specdec import docs
from specdec.config.check import check_document, checker_for
from specdec.config.records import check_records_file
from specdec.config.source import parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)
HAND_WRITTEN = [page for page in PAGES if page.name not in ("options.md", "errors.md", "methods.md")]


def blocks(language: str) -> list:
    found = []
    for page in HAND_WRITTEN:
        for number, match in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            if match[1] == language and "notest" not in match[2]:
                found.append(pytest.param(match[3], id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_examples_are_valid(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = parse(text).data
    if "speculators" in data:
        (tmp_path / "records.yaml").write_text(text, encoding="utf-8")
        assert check_records_file(tmp_path / "records.yaml") == []
    elif "speculative" in data and "records" not in data:
        document = parse(text, "example.yaml")
        checker, problems = checker_for(document.data)
        assert [*problems, *check_document(document, checker)] == []


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_records_example_works_as_shown(tmp_path, monkeypatch):
    """The two files of "YAML only", side by side, resolve; the stricter rule holds."""
    import specdec

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/add-a-speculator.md").read_text(encoding="utf-8")
    records, run = [m[3] for m in FENCE.finditer(page) if m[1] == "yaml"]
    (tmp_path / "my_records.yaml").write_text(records, encoding="utf-8")
    (tmp_path / "run.yaml").write_text(run, encoding="utf-8")
    config = specdec.resolve(tmp_path / "run.yaml").unwrap()
    assert (config.method, config.options.prompt_lookup_min, config.options.prompt_lookup_max) == (
        "careful_ngram",
        3,
        6,
    )
    loose = specdec.resolve(tmp_path / "run.yaml", ["speculative.prompt_lookup_min=2"])
    assert [d.code for d in loose.errors] == ["careful-window"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_generated_pages_are_fresh(capsys):
    assert docs.main(["--check"]) == 0, capsys.readouterr().err


def test_every_verb_shown_exists():
    from specdec.cli.main import VERBS

    shown = {
        verb
        for page in HAND_WRITTEN
        for verb in re.findall(r"^\s*(?:\$ )?specdec ([a-z]+)", page.read_text("utf-8"), re.M)
    }
    assert shown <= set(VERBS)
