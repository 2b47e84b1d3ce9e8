"""The exact text of findings: each bad example, and overrides, against files under tests/golden.

``SPECDEC_UPDATE_GOLDEN=1`` rewrites the files; read the difference before committing it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from specdec.cli.validate import check_file
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.findings.render import render_text
from specdec.config.show.catalog import catalog

TESTS = Path(__file__).resolve().parents[2]
BAD = sorted((TESTS / "examples" / "bad").glob("*.yaml"))
GOLDEN = TESTS / "golden"
PARSER_DEPENDENT = {"tab", "syntax-bracket", "syntax-colon", "syntax-quote"}  # the place differs without libyaml
OVERRIDES = {
    "override-typo": ["speculative.num_speculatve_tokens=4"],
    "override-plus-typo": ["+speculative.num_speculatve_tokens=4"],
    "override-root-typo": ["perferences.trait=x"],
    "override-section-typo": ["enigne.max_num_seqs=4"],
    "override-wrong-section": ["speculative.max_num_seqs=4"],
    "override-other-method": ["speculative=eagle3", "speculative.model=./d"],
    "override-method-typo": ["speculative=eagel3"],
    "override-type": ["speculative.num_speculative_tokens=three"],
    "override-octal": ["engine.max_num_seqs=010"],
    "override-range": ["engine.gpu_memory_utilization=2"],
    "override-nan": ["sampling.temperature=.nan"],
    "override-nested": ["speculative=eagle3", "~speculative.prompt_lookup_max", "speculative.model=./d", "speculative.tree={steps: 2, topkk: 2}"],
    "override-equals": ["speculative.model=./my=dir"],
    "override-json": ['speculative={"method": "mtp"}'],
    "override-index": ["speculative[0].method=mtp"],
    "override-spaces": ["target.model=my (model)"],
    "override-sweep": ["speculative.num_speculative_tokens=1,3,5"],
    "override-twice": ["speculative.method=mtp", "speculative.method=ngram"],
    "override-twice-list": ["sampling.stop_token_ids=[1]", "sampling.stop_token_ids=[2]"],
    "override-remove": ["~speculative.prompt_lookup_mx"],
    "override-below-value": ["speculative.method.name=mtp"],
    "override-hydra": ["hydra.run.dir=x"],
    "override-package": ["speculative@x=mtp"],
    "override-empty-key": ["=3"],
}  # fmt: skip
BASE = "speculative:\n  method: ngram\n  num_speculative_tokens: 3\n  prompt_lookup_max: 4\n"


def compare(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("SPECDEC_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), "no golden file; set SPECDEC_UPDATE_GOLDEN=1 to write it"
    assert text == file.read_text(encoding="utf-8")


def rendered(found: list[Diagnostic]) -> str:
    return render_text(found) + "\n"


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_examples(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if file.stem in PARSER_DEPENDENT and not hasattr(yaml, "CSafeLoader"):
        assert check_file(str(file), [])
        return
    monkeypatch.chdir(file.parent)
    found = check_file(file.name, [])
    assert found
    compare(file.stem, rendered(found))


@pytest.mark.parametrize("name", OVERRIDES)
def test_overrides(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(BASE)
    found = check_file("run.yaml", OVERRIDES[name])
    assert found
    compare(name, rendered(found))


def test_every_golden_file_has_a_test_and_there_are_many() -> None:
    files = {file.stem for file in GOLDEN.glob("*.txt")}
    assert files == {file.stem for file in BAD} | set(OVERRIDES)
    assert len(files) >= 60


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.txt")), ids=lambda file: file.stem)
def test_messages_are_short_and_never_advise_to_append(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "Traceback" not in text
    assert "+" not in "".join(line for line in text.splitlines() if line.startswith("  fix:"))
    codes = re.findall(r"(?:error|warning)\[([a-z0-9-]+)\]", text)
    assert codes and all(code in catalog() for code in codes)
    assert len(text.splitlines()) <= 4 * len(codes)
