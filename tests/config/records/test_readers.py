"""What a record declares has a reader: code, an expression of a record, plan or export."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from specdec.config.records.registry import builtin

ROOT = Path(__file__).parents[3]
RECORDS = builtin().records.values()
CODE = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "specdec").rglob("*.py")))
TEXT = "\n".join(
    (ROOT / name).read_text(encoding="utf-8") for name in ("speculators.yaml", "specdec/config/export/flags.yaml")
)
# What an engine asks a finalized configuration for by name, as `config.<name>`; `export` and `plan` show it as it is.
OWED = {
    "draft_query_rows", "max_model_len_limit", "has_own_kv", "prefer_dense_token_history",
    "uses_separate_workspace_lane", "variable_length_drafts", "provides_confidence",
}  # fmt: skip


def unread(group: str, names: Iterable[str]) -> list[str]:
    """Names that no expression (``group.name``) and no line of code (a text or an attribute) reads."""
    return [
        name
        for name in sorted(set(names) - OWED)
        if not re.search(rf"\b{group}\.{name}\b", TEXT) and not re.search(rf"[\"'.]{name}\b", CODE)
    ]


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("capabilities", {name for record in RECORDS for name in record.capabilities}),
        ("numbers", {name for record in RECORDS for name in record.derive}),
        ("target", {name for target in builtin().targets.values() for name in target.facts}),
    ],
)
def test_nothing_is_declared_that_nobody_reads(group: str, names: set[str]) -> None:
    assert unread(group, names) == []


def test_what_engines_are_owed_is_declared() -> None:
    declared = {name for record in RECORDS for name in (*record.capabilities, *record.derive)}
    assert declared >= OWED


def test_every_target_record_says_something() -> None:
    for target in builtin().targets.values():
        says = (target.allowed_methods, target.denied_methods, target.default_aux_layers, target.facts, target.rules)
        assert any(says) or target.defaults, target.name
