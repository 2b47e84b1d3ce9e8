"""The packaged prompts are ten kinds; user files in the usual shapes are read, broken ones are located."""

from __future__ import annotations

import json

import pytest

from specdec.bench.prompts import BenchPromptError, read, tokenize


def test_packaged_prompts_are_one_of_each_kind():
    items = read([])
    assert len(items) == 10
    assert len({i["kind"] for i in items}) == len({i["id"] for i in items}) == 10


def test_shapes_of_user_files(tmp_path):
    lines = [
        {"prompt": "one", "kind": "k"},
        {"id": "t-1", "category": "math", "turns": ["two", "later"]},
        "three",
    ]
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8")
    items = read([file])
    assert [i["prompt"] for i in items] == ["one", "two", "three"]
    assert [i["kind"] for i in items] == ["k", "math", "prompt"]
    assert items[1]["id"] == "t-1"
    assert len(read([file, file], limit=1)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", ":1: not JSON"), ('{"a": 1}', ":1: no prompt"), ('{"turns": []}', ":1: no prompt"), ("", "empty")],
)
def test_broken_files_are_located(tmp_path, content, message):
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    with pytest.raises(BenchPromptError, match=message):
        read([file])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BenchPromptError, match="absent"):
        read([tmp_path / "absent.jsonl"])


class Tokenizer:
    chat_template = "x"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "<" + messages[0]["content"] + ">"

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [ord(c) for c in text] + ([0] if add_special_tokens else [])}


def test_the_chat_template_is_used_unless_raw():
    items = [{"id": "1", "kind": "k", "prompt": "a"}]
    assert tokenize(items, Tokenizer())[0].token_ids == (60, 97, 62)
    assert tokenize(items, Tokenizer(), raw=True)[0].token_ids == (97, 0)
