"""The index of the built-in records says what the YAML says, and is left alone when the YAML was edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec.config.records import index as records_index
from specdec.config.records import text as records_text
from specdec.config.records.data_files import data_file
from specdec.config.records.index import FILE, RECORDS, IndexedText, index_text, read_indexed, sections_file

ROOT = Path(records_index.__file__).parents[3]


@pytest.fixture(scope="module")
def indexed() -> IndexedText:
    text = read_indexed()
    assert isinstance(text, IndexedText), "run: make docs"
    return text


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for step, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths(inner, (*path, step))


def test_the_index_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == index_text(), "run: make docs"


def test_it_has_every_value_and_every_place_of_the_yaml(indexed: IndexedText) -> None:
    parsed = records_text.read(data_file(RECORDS))
    assert indexed.value == parsed.value
    for path in paths(parsed.value):
        assert indexed.source(path) == parsed.source(path), path
    for absent in (
        ("speculators", "ngram", "nothing"),
        ("speculators", "ngram", "title", "x"),
        ("references", 99),
        (7,),
    ):
        assert indexed.source(absent) == parsed.source(absent), absent
    where = ("speculators", "ngram", "summary")
    assert indexed.value_source(where, 2) == parsed.value_source(where, 2)


def test_a_place_needs_no_yaml(indexed: IndexedText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_index, "read", lambda path: pytest.fail("parsed the YAML"))
    source = indexed.source(("speculators", "ngram", "options"))
    assert source.text is not None and source.text.strip().startswith("options:")


def test_a_damaged_index_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = sections_file()
    monkeypatch.setattr(records_index, "FILE", tmp_path / "damaged.json")
    for content in (None, b"", b"{", b"[]", b'{"made_from": "0"}', b"\xff"):
        if content is not None:
            (tmp_path / "damaged.json").write_bytes(content)
        records_index._index.cache_clear()
        assert read_indexed() is None and sections_file() == shipped
    records_index._index.cache_clear()


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project whose records somebody edits."""
    copy = tmp_path_factory.mktemp("edited")
    for name in ("specdec", "schemas"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run(project: Path, records: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / RECORDS).write_text(records, encoding="utf-8")
    (project / "run.yaml").write_text("speculative: {method: my_ngram, num_speculative_tokens: 9}\n")
    command = [sys.executable, "-m", "specdec", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(project)}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


ADDED = "\nspeculators:\n  my_ngram:\n    extends: ngram\n    title: Mine\n    summary: As ngram.\n"


def test_an_edit_counts_at_once(edited: Path) -> None:
    records = data_file(RECORDS).read_text(encoding="utf-8").replace("\nspeculators:\n", ADDED, 1)
    done = run(edited, records, "validate", "run.yaml", "engine.seed=1")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    done = run(edited, records, "plan", "run.yaml")
    assert done.returncode == 0 and done.stdout.startswith("my_ngram"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (ADDED + "    sumary: x\n", "sumary"),
        (ADDED + "    options: 3\n", "options"),
        (ADDED + "  my_ngram: {}\n", "given twice"),
        (ADDED + "  No name:\n    title: x\n    summary: y\n", "No name"),
        (ADDED + "    title: [\n", "speculators.yaml"),
    ],
)
def test_a_faulty_edit_is_one_message(edited: Path, broken: str, says: str) -> None:
    records = data_file(RECORDS).read_text(encoding="utf-8").replace("\nspeculators:\n", broken, 1)
    for verb in ("validate", "plan"):
        done = run(edited, records, verb, "run.yaml")
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.stdout == "" and len(done.stderr.splitlines()) == 1
