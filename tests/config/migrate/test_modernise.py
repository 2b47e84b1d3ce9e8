"""Older files get today's names; comments and layout stay."""

from __future__ import annotations

import pytest

from specdec.config.migrate.modernise import modernise
from specdec.config.read.source import parse

OLD = """# my config
speculator:           # the old name of the block
  method: nextn       # an alias
  num_speculative_tokens: 2
"""


def test_names_are_replaced_in_place():
    text, notes = modernise(parse(OLD, "old.yaml"))
    assert text == (
        "# my config\nschema_version: 1\nspeculative:           # the old name of the block\n"
        "  method: mtp       # an alias\n  num_speculative_tokens: 2\n"
    )
    assert [n.path for n in notes] == ["speculator", "speculator.method", "schema_version"]
    assert all(n.severity == "note" for n in notes)


def test_option_aliases_are_renamed():
    text, _ = modernise(parse("schema_version: 1\nspeculative: {method: ngram, prompt_lookup_num_tokens: 4}\n"))
    assert parse(text).data["speculative"] == {"method": "ngram", "prompt_lookup_max": 4}


def test_current_file_is_left_alone():
    text = "schema_version: 1\nspeculative: {method: ngram}  # kept\n"
    assert modernise(parse(text)) == (text, [])


def test_json_file_stays_json():
    text, _ = modernise(parse('{"speculative": {"method": "prompt_lookup"}}'))
    assert parse(text).data == {"schema_version": 1, "speculative": {"method": "ngram"}}


@pytest.mark.parametrize("text", ["[1, 2]", "text", "3"])
def test_not_a_mapping_is_one_error(text):
    result, errors = modernise(parse(text))
    assert result == "" and [e.code for e in errors] == ["wrong-type"]
