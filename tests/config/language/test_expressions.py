"""Expressions: types, missing values, presence, messages, faults with a column."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from specdec.config.language.expressions import MISSING, ExpressionError, Scope, option_type, placeholders, shown
from specdec.config.language.functions import tensors
from specdec.config.language.record import OptionSpec
from specdec.config.records.registry import builtin

SCOPE = Scope(
    {"k": "integer", "draft.block": "integer", "draft.ids": "list<integer>", "options.rate": "number", "options.tree": "map",
     "options.entries": "list<list<integer>>", "options.any": "any", "draft.on": "boolean", "draft.name": "string"},
    {"draft.on": True},
)  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "values", "result"),
    [
        ("draft.on ? k : k + 1", {"k": 3}, 3),
        ("draft.on ? k : k + 1", {"k": 3, "draft.on": False}, 4),
        ("k <= draft.block", {"k": 3}, MISSING),
        ("k <= draft.block", {"k": 3, "draft.block": None}, MISSING),
        ("k > 2 || draft.block > 1", {"k": 3}, True),
        ("k > 3 && draft.block > 1", {"k": 3}, False),
        ("known.draft.block", {}, False),
        ("known.draft.block && draft.block > 1", {}, False),
        ("known.draft.block ? draft.block : 7", {}, 7),
        ("options.rate * 2.0 > 1.0", {"options.rate": 1}, True),
        ("draft.ids.all(i, i > 0) && size(draft.ids) == 2", {"draft.ids": (1, 2)}, True),
        ("options.tree.steps + 1", {"options.tree": {"steps": 2}}, 3),
        ("options.tree.topk", {"options.tree": {"steps": 2}}, MISSING),
        ("increasing(draft.ids)", {"draft.ids": [1, 1]}, False),
        ("falling(draft.ids)", {"draft.ids": [2, 2, 1]}, True),
        ("ranges_disjoint(options.entries)", {"options.entries": [[1, 4, 3], [4, 8, 2]]}, False),
        ("ranges_contiguous(options.entries)", {"options.entries": [[1, 4, 3], [5, 8, 2]]}, True),
        ("min(k, 2) + max(k, 2)", {"k": 5}, 7),
        ("k > 1 ? dyn(null) : dyn(k)", {"k": 5}, None),
        ("type(options.any) == list", {"options.any": "default"}, False),
        ("draft.name == 'k.draft'", {"draft.name": "k.draft"}, True),
        ("k + 1", {"k": "three"}, MISSING),
        ("k + 1", {"k": True}, MISSING),
        ("k + 1", {"k": 2**70}, MISSING),
    ],
)
def test_values(expression: str, values: dict[str, Any], result: Any) -> None:
    found = SCOPE.evaluate(expression, values)
    assert found is result if result is MISSING else found == result


@pytest.mark.parametrize(
    ("expression", "values"),
    [("dyn(null)", {}), ("k > 1 ? dyn(null) : dyn(k)", {"k": 5}), ("options.any", {"options.any": {"a": None}})],
)
def test_a_null_gives_no_reference_away(expression: str, values: dict[str, Any]) -> None:
    SCOPE.evaluate(expression, values)
    before = sys.getrefcount(None)
    for _ in range(1000):
        SCOPE.evaluate(expression, values)
    assert sys.getrefcount(None) > before - 500  # None is deallocated, and the process ends, when its count gets to 0


@pytest.mark.parametrize(
    ("expression", "column", "says"),
    [
        ("k + draft.blok", 5, "draft.block"),
        ("known.draft.blok", 1, "draft.block"),
        ("k + 'a'", 3, "int, string"),
        ("k > ", 5, "Syntax error"),
        ("options.rate > k", 14, "double, int"),
        ("increasing(k)", 11, "increasing"),
    ],
)
def test_a_mistake_has_a_column(expression: str, column: int, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        SCOPE.compile(expression)
    assert caught.value.column == column
    assert says in caught.value.message


def test_a_division_by_zero_is_a_fault_and_not_a_missing_value() -> None:
    with pytest.raises(ExpressionError, match="divide by zero"):
        SCOPE.evaluate("k / draft.block", {"k": 1, "draft.block": 0})


def test_conditions() -> None:
    assert SCOPE.holds(None, {}) is True
    assert SCOPE.holds("draft.on", {}) is True
    assert SCOPE.holds("draft.block > 1", {}) is MISSING


def test_messages_show_values() -> None:
    text = "drafts {k} of {draft.block}: {draft.ids} {options.rate} {draft.on}"
    assert SCOPE.text(text, {"k": 3, "draft.ids": [1, 2], "options.rate": 0.5}) == "drafts 3 of ?: [1, 2] 0.5 true"
    assert list(placeholders("a {k} b {k + 1}")) == [(3, "k"), (9, "k + 1")]
    assert shown(1e-6) == "1e-06"


def test_inputs_are_what_a_derived_value_came_from() -> None:
    assert SCOPE.inputs("draft.on ? k : draft.block + size('k.draft.ids')") == ("draft.on", "k", "draft.block")
    assert SCOPE.inputs("known.draft.block ? k : 1") == ("k",)


@pytest.mark.parametrize(
    ("types", "items", "result"),
    [
        (("integer", "null"), None, "integer"),
        (("array",), {"type": "number"}, "list<number>"),
        (("array", "null"), {"type": "array", "items": {"type": "integer"}}, "list<list<integer>>"),
        (("array", "string"), None, "any"),
        (("object",), None, "map"),
    ],
)
def test_types_of_options(types: tuple[str, ...], items: Any, result: str) -> None:
    assert option_type(OptionSpec("x", types, "", items=items)) == result


def test_every_expression_of_every_record_compiles() -> None:
    registry = builtin()
    count = 0
    for name, record in registry.records.items():
        scope = registry.scope(name)
        shown_in_messages = [
            e for rule in record.rules for text in (rule.message, rule.fix or "") for _, e in placeholders(text)
        ]
        conditions = [e for rule in record.rules for e in (rule.when, rule.check) if e]
        for expression in (*record.derive.values(), *record.resources.values(), *conditions, *shown_in_messages):
            scope.compile(expression)
            count += 1
        assert all(scope.compile(e).type in ("bool", "dyn") for e in conditions)
        for expression in filter(None, (record.declares, record.accepts)):
            assert registry.identity_scope.compile(expression).type == "bool"
    assert count > 1000


SHAPES = {"layers.0.q.weight": (8, 4), "layers.1.q.weight": (8, 4), "layers.1.k.weight": (2, 4), "fc.weight": (4, 12)}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("tensor_dim('fc.weight', 1)", 12),
        ("tensor_dim('fc.weight', 2)", MISSING),
        ("tensor_dim('fc.bias', 0)", MISSING),
        ("tensor_dim('fc.bias', 0) == 4 || true", True),
        ("has_tensor('fc.weight')", True),
        ("has_tensor('fc.bias')", False),
        (r"tensor_count(r'^layers\.(\d+)\.')", 2),
        ("tensor_count('^layers')", 3),
        (r"tensor_last(r'^layers\.(\d+)\.')", 1),
        (r"tensor_last(r'^blocks\.(\d+)\.')", -1),
    ],
)
def test_tensors_are_asked_by_name(expression: str, value: object) -> None:
    with tensors(SHAPES):
        assert Scope({}).evaluate(expression, {}) == value
    assert Scope({}).evaluate(expression, {}) is (MISSING if "true" not in expression else True)  # nothing is known
