"""list: methods, the compatibility matrix, capabilities, aliases, JSON."""

from __future__ import annotations

import json

import pytest

from specdec.config.records.registry import builtin
from specdec.config.show import matrix


def test_every_method_is_listed(specdec):
    result = specdec("list")
    assert result.code == 0
    methods, matrix, *_ = result.out.split("\n\n")
    for table in (methods, matrix):
        assert [line.split()[0] for line in table.splitlines()[1:]] == list(builtin().records)
    assert max(len(line) for line in result.out.splitlines()) <= 100


def test_matrix_follows_the_records(specdec):
    lines = specdec("list", "--features").out.splitlines()
    header = lines[0].split()
    row = dict(zip(header, next(x for x in lines if x.startswith("ngram ")).split(), strict=True))
    assert row["lora"] == "-" and row["json"] == "yes"


def test_json(specdec):
    data = json.loads(specdec("list", "--format", "json").out)
    methods = {m["name"]: m for m in data["methods"]}
    assert data["format"] == "specdec/list/1"
    assert methods["dspark"]["capabilities"]["uses_separate_workspace_lane"] is True
    assert methods["medusa"]["engines"]["vllm"] == "-"


def test_aliases_and_capabilities(specdec):
    out = specdec("list", "--aliases", "--capabilities").out
    assert "nextn" in out.lower() and "uses_aux_hidden_states" in out


def test_a_records_file_is_listed_and_a_broken_one_refused(specdec, tmp_path):
    good = tmp_path / "mine.yaml"
    good.write_text("schema_version: 1\nspeculators:\n  mine: {extends: ngram, title: Mine, summary: My own lookup.}\n")
    assert "mine" in specdec("list", "--records", str(good)).out
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema_version: 1\nspeculators:\n  mine: {extends: ngramm, title: Mine, summary: My own lookup.}\n")
    refused = specdec("list", "--records", str(bad))
    assert refused.code == 1 and "ngramm" in refused.err


@pytest.mark.parametrize(
    ("feature", "flag"), [("watermarking", "supports_watermarking"), ("prefill_context_parallel", "supports_pcp")]
)
def test_matrix_and_flags_agree(feature, flag):
    """What the table says about a feature is what the capability flag of the record says."""
    for record in builtin().records.values():
        assert (matrix.feature_cell(record, feature) != matrix.NO) is record.capabilities[flag], record.name


def test_every_no_has_a_reason(specdec):
    for method in json.loads(specdec("list", "--format", "json").out)["methods"]:
        assert {name for name, cell in method["features"].items() if cell != "yes"} == set(method["limits"]), method[
            "name"
        ]
