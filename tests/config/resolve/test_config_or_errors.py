"""No configuration without a reason: ``config is None`` exactly when there is an error, for every input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import specdec
from specdec.config.records.parse import check_records_file
from specdec.config.records.registry import builtin

TESTS = Path(__file__).parents[2]
EXAMPLES = sorted((TESTS / "examples").rglob("*.y*ml"))
DRAFT_CONFIGS = sorted((TESTS / "fixtures" / "draft_configs").glob("*.json"))
TARGET = {"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 8}
SETS = sorted(builtin()._sets["option_sets"])  # the sets that records may use

RECORDS = st.fixed_dictionaries(
    {"title": st.just("Mine"), "summary": st.just("One of mine.")},
    optional={
        "implementation": st.just("mine.speculator:Mine"),
        "extends": st.sampled_from(["ngram", "eagle3", "dflash"]),
        "options": st.fixed_dictionaries({"use": st.lists(st.sampled_from(SETS), max_size=2, unique=True)}),
        "defaults": st.fixed_dictionaries({}, optional={"num_speculative_tokens": st.integers(-1, 200)}),
        "capabilities": st.fixed_dictionaries({}, optional={"needs_draft_checkpoint": st.booleans()}),
    },
)


def assert_reason(result: specdec.Resolution) -> None:
    assert (result.config is None) == bool(result.errors), [str(d) for d in result.diagnostics]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples(file: Path) -> None:
    assert_reason(specdec.resolve(file))


@pytest.mark.parametrize(("number", "file"), enumerate(DRAFT_CONFIGS), ids=lambda value: getattr(value, "stem", ""))
def test_published_drafts_under_other_methods(number: int, file: Path) -> None:
    draft = json.loads(file.read_text())
    for method in (None, *sorted(builtin().records)[number % 5 :: 5]):  # all methods over any five files
        user = {"model": "./d", **({"method": method} if method else {})}
        assert_reason(specdec.resolve({"speculative": user}, draft_config=draft, target_config=TARGET))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECORDS, st.none() | st.integers(-1, 9), st.booleans())
def test_records_of_a_file(tmp_path_factory: Any, record: dict[str, Any], k: int | None, draft: bool) -> None:
    folder = tmp_path_factory.mktemp("records")
    (folder / "mine.yaml").write_text(json.dumps({"schema_version": 1, "speculators": {"mine": record}}))
    block = {"method": "mine", "num_speculative_tokens": k, **({"model": "./d"} if draft else {})}
    (folder / "run.yaml").write_text(json.dumps({"schema_version": 1, "records": ["mine.yaml"], "speculative": block}))
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 128} if draft else None
    assert_reason(specdec.resolve(folder / "run.yaml", draft_config=config, target_config=TARGET))


def test_every_record_has_the_number_of_drafted_tokens(tmp_path: Path) -> None:
    record = {"title": "Mine", "summary": "One of mine."}
    text = {"schema_version": 1, "speculators": {"mine": record}}
    (tmp_path / "mine.yaml").write_text(json.dumps(text))
    run = {"records": ["mine.yaml"], "speculative": {"method": "mine"}}
    (tmp_path / "run.yaml").write_text(json.dumps({"schema_version": 1, **run}))
    assert [d.code for d in specdec.resolve(tmp_path / "run.yaml").errors] == ["missing-required"]
    config = specdec.resolve(tmp_path / "run.yaml", ["speculative.num_speculative_tokens=3"]).unwrap()
    assert config.num_speculative_tokens == 3


def test_the_number_of_drafted_tokens_cannot_be_dropped(tmp_path: Path) -> None:
    record = {
        "title": "Mine",
        "summary": "One of mine.",
        "extends": "ngram",
        "options": {"drop": ["num_speculative_tokens"]},
    }
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"schema_version": 1, "speculators": {"mine": record}}))
    codes = [d.code for d in check_records_file(file)]
    assert codes == ["drafted-count-dropped"]
