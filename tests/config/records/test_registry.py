"""Names, aliases, clashes, run-time registration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec.config.records import registry as registry_module
from specdec.config.records.extends import RecordError
from specdec.config.records.registry import UnknownSpeculatorError, builtin

MINE = {
    "name": "mine",
    "title": "Mine",
    "summary": "A stricter lookup.",
    "extends": "ngram",
    "defaults": {"num_speculative_tokens": 3},
}
NAMES = {
    "ngram_gpu": "ngram", "prompt_lookup": "ngram", "[ngram]": "ngram", "nextn": "mtp", "NEXTN": "mtp", "STANDALONE": "draft_model",
    "standalone": "draft_model", "EAGLE3": "eagle3", "Eagle": "eagle", "DFLASH": "dflash", "DSPARK": "dspark", "deepseek_mtp": "mtp",
    "qwen3_5_mtp": "mtp", "mimo_mtp": "mtp", "frozen_kv_mtp": "gemma4", "suffix_decoding": "suffix", "NGRAM": "ngram",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_engines(name: str) -> None:
    assert builtin().resolve_name(name)[0].name == NAMES[name]


def test_model_specific_names_are_deprecated_and_plain_ones_are_not() -> None:
    aliases = builtin().aliases.values()
    specific = [alias for record, alias in aliases if record == "mtp" and alias.name.endswith(("_mtp", "mtp"))]
    assert len(specific) == 27
    assert all(alias.deprecated for alias in specific)
    assert not builtin().resolve_name("nextn")[1].deprecated  # type: ignore[union-attr]
    assert builtin().resolve_name("mtp")[1] is None


@pytest.mark.parametrize(
    ("name", "near"), [("eagel3", "eagle3"), ("ngramm", "ngram"), ("d_flash", "dflash"), ("mtpp", "mtp")]
)
def test_an_unknown_name_has_near_ones(name: str, near: str) -> None:
    with pytest.raises(UnknownSpeculatorError) as caught:
        builtin().resolve_name(name)
    assert near in caught.value.near and near in str(caught.value)


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(UnknownSpeculatorError, match="there is: ngram, suffix"):
        builtin().resolve_name("zzzzzz")


def test_a_registry_is_a_value() -> None:
    before = builtin()
    after = before.with_record(MINE)
    assert "mine" in after.records and "mine" not in before.records
    assert after.records["mine"].extends == ("ngram",)
    assert after.records["mine"].implementation == before.records["ngram"].implementation


def test_the_same_record_twice_is_fine() -> None:
    once = builtin().with_record(MINE)
    assert once.with_record(dict(MINE)) is once


@pytest.mark.parametrize("name", ["ngram", "nextn", "EAGLE3"])
def test_a_name_that_is_taken_is_refused_with_both_sources(name: str) -> None:
    with pytest.raises(RecordError) as caught:
        builtin().with_record({**MINE, "name": name.lower()}, origin="my_module")
    assert caught.value.code == "record-clash"
    assert "built in" in str(caught.value) and "my_module" in str(caught.value)


def test_an_alias_that_is_taken_is_refused() -> None:
    with pytest.raises(RecordError, match="built in"):
        builtin().with_record({**MINE, "aliases": {"eagle3": {}}})


def test_a_record_without_a_name() -> None:
    with pytest.raises(RecordError, match="name"):
        builtin().with_record({"title": "Nobody", "summary": "No name."})


def test_a_class_path_of_another_kind_is_refused() -> None:
    with pytest.raises(RecordError, match="implementation"):
        builtin().with_record({**MINE, "implementation": "os.system('x')"})


def test_a_child_merges_maps_and_replaces_lists() -> None:
    child = builtin().with_record(
        {**MINE, "capabilities": {"supports_pcp": True}, "hash_factors": ["options.prompt_lookup_max"]}
    )
    record, parent = child.records["mine"], builtin().records["ngram"]
    assert record.capabilities == {**parent.capabilities, "supports_pcp": True}
    assert record.hash_factors == ("options.prompt_lookup_max",)
    assert record.defaults == {**parent.defaults, "num_speculative_tokens": 3}
    assert not record.aliases and record.declares is None and record.origin == "register_speculator"


def test_rules_merge_by_id() -> None:
    define = [
        {"id": "min-greater-than-max", "severity": "warning"},
        {"id": "mine-too", "check": "k < 9", "at": "x", "message": "m", "fix": "f"},
    ]
    record = builtin().with_record({**MINE, "rules": {"define": define, "drop": ["schedule-gap"]}}).records["mine"]
    rules = {rule.id: rule for rule in record.rules}
    assert rules["min-greater-than-max"].severity == "warning"
    assert (
        rules["min-greater-than-max"].check
        == {r.id: r for r in builtin().records["ngram"].rules}["min-greater-than-max"].check
    )
    assert "mine-too" in rules and "schedule-gap" not in rules


def test_a_record_may_extend_one_of_another_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("schema_version: 1\nspeculators:\n  one: {title: One, summary: The first., extends: ngram}\n")
    second.write_text("schema_version: 1\nspeculators:\n  two: {title: Two, summary: The second., extends: one}\n")
    assert builtin().with_file(first).with_file(second).records["two"].extends == ("one", "ngram")
    with pytest.raises(RecordError, match="'one'"):
        builtin().with_file(second)


@pytest.fixture
def registered() -> Any:
    yield
    registry_module._registered.clear()
    registry_module._current.cache_clear()
    registry_module._installed.cache_clear()


def test_register_at_run_time(registered: None, tmp_path: Path) -> None:
    import specdec

    specdec.register_speculator(MINE)
    specdec.register_speculator(dict(MINE))
    file = tmp_path / "more.yaml"
    file.write_text("schema_version: 1\nspeculators:\n  more: {title: More, summary: From a file., extends: mine}\n")
    assert "more" in specdec.register_speculator(file).records
    assert "more" in registry_module.installed().records
    with pytest.raises(RecordError):
        specdec.register_speculator({**MINE, "title": "Another"})
    result = specdec.resolve(
        {"target": {"model": "./t"}, "speculative": {"method": "more"}}, target_config={"vocab_size": 8}
    )
    assert (result.unwrap().method, result.unwrap().num_speculative_tokens) == ("more", 3)


def test_looking_at_records_imports_nothing_heavy() -> None:
    code = (
        "import sys; from specdec.config.records.registry import builtin\n"
        "[builtin().records[n] for n in builtin().records]\n"
        "heavy = {'torch', 'transformers', 'triton', 'hydra', 'pydantic', 'jsonschema', 'cel_expr_python'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text", ["root:$6$secret:19000:0:99999:7:::\n", "[section]\npassword = secret\n", "plain secret\nmore: x: secret\n",
             "key: secret\n", "- secret\n", "\tsecret: 1\n"]
)  # fmt: skip
def test_lines_of_other_files_are_not_shown(text, tmp_path):
    import specdec
    from specdec.config.findings.render import render_text

    (tmp_path / "other").write_text(text)
    document = {"records": [str(tmp_path / "other")], "speculative": {"method": "ngram", "num_speculative_tokens": 3}}
    resolution = specdec.resolve(document)
    assert resolution.errors and "secret" not in render_text(resolution.diagnostics)
