"""Reading facts: keys and wrappers, types, conversions, tensors, and what makes an expression hold."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.config.checkpoint import CONVERSIONS, Checkpoint, as_type, read_facts
from specdec.config.checkpoint.facts.clauses import true_leaves
from specdec.config.checkpoint.facts.convert import ConversionContext
from specdec.config.checkpoint.facts.keys import assign, find, lookup
from specdec.config.language.record import FactSpec
from specdec.config.records.registry import builtin

CONFIG = {
    "a": 1,
    "none": None,
    "text_config": {"b": 2, "a": 9},
    "kind": "y",
    "list": [{"type": "x", "n": 1}, {"type": "y", "n": 2}],
}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("a", ("a", 1)),
        ("b", ("text_config.b", 2)),
        ("none", None),
        ("a.b.c", None),
        ("list[0].n", ("list[0].n", 1)),
        ("list[5].n", None),
        ("list[type=kind].n", ("list[type=kind].n", 2)),
        ("list[type=nothing].n", None),
        ("kind[0]", None),
    ],
)
def test_keys(key: str, found: Any) -> None:
    assert find(CONFIG, key) == found


def test_assign_makes_maps() -> None:
    config: dict[str, Any] = {"a": 1}
    assign(config, "a.b", 2)
    assert lookup(config, "a.b") == 2


@pytest.mark.parametrize(
    ("value", "kind", "result"),
    [
        (8, "integer", 8), (8.0, "integer", 8), (8.5, "integer", None), (True, "integer", None), ("8", "integer", None),
        (float("nan"), "number", None), (1, "number", 1), (1e6, "number", 1e6), (1, "boolean", None), (False, "boolean", False),
        ([1, 2], "list<integer>", [1, 2]), ([1, "x"], "list<integer>", None), (3, "list<integer>", None), ((1,), "list<integer>", [1]),
        ({"a": 1}, "map", {"a": 1}), ([], "map", None), ("x", "string", "x"), (None, "string", None), ([], "any", []),
        ([False], "list<boolean>", [False]),
    ],
)  # fmt: skip
def test_types(value: Any, kind: str, result: Any) -> None:
    assert as_type(value, kind) == result


def fact(kind: str, *keys: str, **more: Any) -> dict[str, FactSpec]:
    return {"f": FactSpec("f", kind, keys, **more)}


def test_the_first_key_wins_and_is_named() -> None:
    found, findings = read_facts(fact("integer", "x", "b", "a"), Checkpoint.from_parts(CONFIG))
    assert found["f"].value == 2 and found["f"].origin.detail == "text_config.b" and findings == []


def test_defaults_depend_on_the_format() -> None:
    spec = fact("boolean", "x", default=True, default_in_speculators_format=False, has_default=True)
    assert read_facts(spec, Checkpoint.from_parts({}))[0]["f"].value is True
    assert read_facts(spec, Checkpoint.from_parts({"speculators_model_type": "x"}))[0]["f"].value is False
    assert read_facts(spec, Checkpoint.from_parts({"x": True, "speculators_config": {}}))[0]["f"].value is True
    assert read_facts(fact("integer", "x"), Checkpoint.from_parts({}))[0] == {}


def test_a_required_fact_that_is_absent() -> None:
    _, findings = read_facts(fact("integer", "x", "y", required=True), Checkpoint.from_parts({}))
    assert [(d.code, d.path) for d in findings] == [("missing-checkpoint-field", "draft.f")] and "x, y" in findings[
        0
    ].message


def test_tensors_tell_presence_and_lengths() -> None:
    checkpoint = Checkpoint.from_parts({}, {"model.fc.weight": [64, 192], "midlayer.norm.weight": [8]})
    assert read_facts(fact("integer", "tensor:fc.weight[1]"), checkpoint)[0]["f"].value == 192
    assert read_facts(fact("boolean", "tensor:layers.0.norm.weight"), checkpoint)[0]["f"].value is True
    assert read_facts(fact("integer", "tensor:fc.weight[2]"), checkpoint)[0] == {}


@pytest.mark.parametrize(
    ("name", "value", "layers", "result"),
    [
        ("boundary", [2, 4], 6, [2, 4]),
        ("layer_output_to_boundary", [-1, 0, 5], 6, [0, 1, 6]),
        ("eagle_config_ids_to_boundary", [1, 17, 33], None, [2, 18, 34]),
        ("eagle_config_ids_to_boundary", [1, 17, 36], 36, [1, 17, 36]),
        ("eagle_config_ids_to_boundary", [], None, []),
        ("negate", True, None, False),
        ("plus_one", 7, None, 8),
        ("minus_one", 8, None, 7),
        ("length", ["a", "b"], None, 2),
        ("lower", "EAGLE3", None, "eagle3"),
        ("strip_torch", "torch.bfloat16", None, "bfloat16"),
    ],
)
def test_conversions(name: str, value: Any, layers: int | None, result: Any) -> None:
    assert CONVERSIONS[name](value, ConversionContext("key", layers))[0] == result


def test_records_name_conversions_that_exist() -> None:
    for record in builtin().records.values():
        for spec in record.facts.values():
            assert {*spec.key_converts.values(), *([spec.convert] if spec.convert else [])} <= set(CONVERSIONS)


@pytest.mark.parametrize(
    ("expression", "leaves"),
    [
        ("t1", ["t1"]),
        ("f1 || t1", ["t1"]),
        ("(t1 && !f1 && (t2 || f2))", ["t1", "t2"]),
        ("t1('a || b') || t2[x || y]", ["t1('a || b')", "t2[x || y]"]),
        ("(t1) && (t2)", ["t1", "t2"]),
    ],
)
def test_the_parts_that_make_an_expression_hold(expression: str, leaves: list[str]) -> None:
    assert list(true_leaves(expression, lambda part: "t" in part)) == leaves


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200_000) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["layers", "type", "rope_type"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["eagle3", "dflash", "dspark", "mtp", "draft_model", "medusa"]), st.data())
def test_no_config_makes_a_traceback(method: str, data: st.DataObject) -> None:
    from specdec.config.checkpoint import cross_check, detect

    registry = builtin()
    keys = sorted(
        {key.split("[")[0] for spec in registry.records[method].facts.values() for key in spec.keys if ":" not in key}
    )
    flat = data.draw(st.dictionaries(st.sampled_from([*keys, "architectures", "d2t", "trained"]), JSON, max_size=8))
    config: dict[str, Any] = {}
    for key, value in flat.items():
        assign(config, key, value)
    before, checkpoint = copy.deepcopy(config), Checkpoint.from_parts(config)
    target = Checkpoint.from_parts({"num_hidden_layers": 4, "hidden_size": 8, "vocab_size": 16}, role="target")
    detect(registry, checkpoint)
    cross_check(registry.records[method], checkpoint, target, registry)
    assert config == before
