"""Resolving with records of one's own: files, defaults of the engine by rank, new rules without Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import specdec
from specdec.config.records.registry import Registry, builtin

MINE = """
schema_version: 1
speculators:
  careful_ngram:
    title: Careful n-gram
    summary: N-gram lookup that never drafts more than three tokens.
    extends: ngram
    defaults: {num_speculative_tokens: 2, prompt_lookup_max: 3}
    rules:
      define:
        - id: too-eager
          check: k <= 3
          at: speculative.num_speculative_tokens
          message: "{k} drafted tokens are too many"
          fix: set at most 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(MINE)
    return tmp_path


def test_a_file_may_bring_its_own_records(folder: Path) -> None:
    (folder / "run.yaml").write_text("records: [mine.yaml]\nspeculative: {method: careful_ngram}\n")
    config = specdec.resolve(folder / "run.yaml").unwrap()
    assert (config.method, config.num_speculative_tokens) == ("careful_ngram", 2)
    assert (config.options.prompt_lookup_min, config.options.prompt_lookup_max) == (3, 3)
    refused = specdec.resolve(folder / "run.yaml", ["speculative.num_speculative_tokens=4"])
    assert [(d.code, d.path) for d in refused.errors] == [("too-eager", "speculative.num_speculative_tokens")]
    assert refused.errors[0].source is not None and refused.errors[0].source.kind == "command line"


def test_records_that_cannot_be_read_are_one_finding(folder: Path) -> None:
    for text in ("records: [nothing.yaml]\n", "records: [run.yaml]\n"):
        (folder / "run.yaml").write_text(text + "speculative: {method: ngram, num_speculative_tokens: 2}\n")
        result = specdec.resolve(folder / "run.yaml")
        assert result.config is None
        assert len(result.errors) >= 1


def with_defaults() -> Registry:
    record = {
        "schema_version": 1,
        "speculators": {
            "shy_ngram": {
                "title": "Shy n-gram",
                "summary": "N-gram lookup for few requests.",
                "extends": "ngram",
                "defaults": {"engine.max_num_seqs": 48},
            }
        },
        "targets": {
            "big": {
                "summary": "A big target.",
                "match": {"model_type": ["big"]},
                "defaults": {"engine.max_num_seqs": 256},
            }
        },
    }
    return builtin().with_record(record)


@pytest.mark.parametrize(
    ("method", "engine", "seqs", "kind", "over"),
    [
        ("shy_ngram", {}, 48, "record", [256, 8]),
        ("ngram", {}, 256, "target", [8]),
        ("shy_ngram", {"max_num_seqs": 256}, 256, "user", [48, 256, 8]),
    ],
)
def test_engine_defaults_are_ranked(method: str, engine: dict[str, Any], seqs: int, kind: str, over: list[int]) -> None:
    user = {"speculative": {"method": method, "num_speculative_tokens": 2}, "engine": engine}
    config = specdec.resolve(user, target_config={"model_type": "big"}, registry=with_defaults()).unwrap()
    origin = config.provenance["engine.max_num_seqs"]
    assert config.engine.max_num_seqs == seqs
    assert origin.kind == kind
    assert [value for _, value in origin.over] == over
