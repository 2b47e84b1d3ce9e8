"""Overrides: Hydra's grammar and composition, our findings, sources for every value, sweeps."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec.config.read.overrides import MAX_SWEEP, OverrideError, apply_overrides, expand_sweep, locator

METHODS = ["ngram", "eagle", "eagle3", "mtp"]
FILE: dict[str, Any] = {
    "target": {"model": "./m", "hf_overrides": {"template": "${a} ${", "x": "???"}},
    "speculative": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    "engine": None,
}


def applied(*overrides: str, data: Any = FILE) -> dict[str, Any]:
    before = copy.deepcopy(data)
    result, _, found = apply_overrides(data, overrides, METHODS)
    assert found == []
    assert data == before, "the file's data was changed"
    assert isinstance(result, dict)
    return result


def codes(*overrides: str, data: Any = FILE) -> list[str]:
    result, sources, found = apply_overrides(data, overrides, METHODS)
    assert result == data and not sources, "nothing is applied when something is wrong"
    assert all(d.source is not None and d.source.kind == "command line" and d.source.text in overrides for d in found)
    return [d.code for d in found]


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("8", 8), ("+8", 8), ("0x10", 16), ("0o10", 8), ("010", "010"), ("1_000", "1_000"), ("1e-3", 0.001), ("true", True), ("on", "on"), ("null", None),
        ("None", "None"), ("12:30", "12:30"), ("org/name-8B@rev", "org/name-8B@rev"), ("./a/b.gguf", "./a/b.gguf"), ("x y", "x y"), ("", ""), ("nan", "nan"),
        ("'a=b'", "a=b"), ("'./my=dir ${x} é'", "./my=dir ${x} é"), ("'8'", "8"), ("???", "???"), ("$HOME", "$HOME"), ("[1, {a: b}]", [1, {"a": "b"}]), ("[]", []),
    ],
)  # fmt: skip
def test_values_are_read_like_in_files(override: str, value: Any) -> None:
    found = applied(f"target.tokenizer={override}")["target"]["tokenizer"]
    assert found == value and type(found) is type(value)


def test_a_method_is_chosen_by_group_or_by_key() -> None:
    by_group, by_key = applied("speculative=eagle3"), applied("speculative.method=eagle3")
    assert by_group == by_key
    assert by_group["speculative"] == {"method": "eagle3", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    assert applied("speculative=eagle3", data={})["speculative"] == {"method": "eagle3"}
    assert applied("speculative=egale3")["speculative"]["method"] == "egale3"  # the check reports it


def test_mappings_merge_and_lists_replace() -> None:
    assert applied("speculative.tree={steps: 2, topk: 2}")["speculative"]["tree"] == {"steps": 2, "topk": 2}
    assert applied("speculative={method: mtp}")["speculative"] == {**FILE["speculative"], "method": "mtp"}
    assert applied("sampling.stop=[a]", data={"sampling": {"stop": ["x", "y"]}})["sampling"]["stop"] == ["a"]
    chain = applied("speculative=[{method: ngram}, {method: mtp}]")["speculative"]
    assert chain == [{"method": "ngram"}, {"method": "mtp"}]
    assert applied("speculative.1.num_speculative_tokens=2", data={"speculative": chain})["speculative"][1] == {
        "method": "mtp",
        "num_speculative_tokens": 2,
    }


def test_plus_and_double_plus_and_removal() -> None:
    assert applied("+engine.seed=1") == applied("++engine.seed=1") == applied("engine.seed=1")
    assert "prompt_lookup_max" not in applied("~speculative.prompt_lookup_max")["speculative"]
    assert "speculative" not in applied("~speculative")
    assert applied("sampling.logit_bias={50256: -100}")["sampling"] == {"logit_bias": {"50256": -100}}


def test_texts_of_the_file_mean_nothing_to_hydra() -> None:
    assert applied("engine.seed=1")["target"]["hf_overrides"] == FILE["target"]["hf_overrides"]
    odd = {"defaults": ["x"], "hydra": {"run": 1}, "metadata": {"a.b": [1, None, {"c": "${oc.env:HOME}"}]}}
    assert applied("engine.seed=1", data=odd) == {**odd, "engine": {"seed": 1}}


def test_unknown_keys_are_applied_so_that_the_check_reports_them() -> None:
    _, sources, found = apply_overrides(FILE, ["+speculative.num_speculatve_tokens=4", "perferences.x=1"], METHODS)
    assert found == []
    assert ("speculative", "num_speculatve_tokens") in sources and ("perferences", "x") in sources


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("speculative.model=./my=dir", "override-syntax"), ('speculative={"method": "mtp"}', "override-syntax"), ("a[0]=1", "override-syntax"), ("=3", "override-syntax"),
        ("a.=3", "override-syntax"), ("engine.seed", "override-syntax"), ("x@y=3", "override-syntax"), ("hydra.run.dir=x", "override-syntax"),
        ("target.model={a: 1", "override-syntax"), ("target.model=é", "override-syntax"), ("engine.seed=1,2", "override-sweep"), ("engine.seed=range(1,3)", "override-sweep"),
        ("sampling.temperature=.nan", "not-finite"), ("sampling.temperature=[1, inf]", "not-finite"), ("engine.seed=99999999999999999999", "not-finite"),
        ("~speculative.modl", "override-path"), ("~engine.seed", "override-path"), ("speculative.method.x=1", "override-path"),
    ],
)  # fmt: skip
def test_wrong_overrides(override: str, code: str) -> None:
    assert codes(override) == [code]


def test_twice_the_same_value_is_an_error() -> None:
    assert codes("speculative.method=mtp", "speculative.method=ngram") == ["duplicate-override"]
    assert codes("speculative=mtp", "speculative.method=mtp") == ["duplicate-override"]
    assert codes("speculative={method: mtp}", "speculative=mtp") == ["duplicate-override"]
    assert codes("~engine", "engine=3", data={"engine": {"seed": 1}}) == ["duplicate-override"]
    assert applied("speculative.tree={steps: 2}", "speculative.tree.topk=2")["speculative"]["tree"] == {
        "steps": 2,
        "topk": 2,
    }


def test_all_faults_are_reported_together() -> None:
    assert codes("engine.seed=1,2", "a=b=c", "~target.modl") == ["override-sweep", "override-syntax", "override-path"]


def test_a_chain_needs_an_index() -> None:
    chain = {"speculative": [{"method": "ngram"}]}
    assert codes("speculative=eagle3", data=chain) == ["override-path"]
    assert codes("speculative.3.method=mtp", data=chain) == ["override-path"]
    assert codes("speculative.method=mtp", data=chain) == ["override-path"]


def test_the_override_is_the_source_with_a_column() -> None:
    _, sources, _ = apply_overrides(FILE, ["++speculative.tree={steps: 2, topkk: 3}", "sampling.n=1"], METHODS)
    locate = locator(sources, None)

    def column(path: tuple[str, ...], key: bool) -> tuple[str, int]:
        source = locate(path, key)
        return source.text, source.column

    text = "++speculative.tree={steps: 2, topkk: 3}"
    assert column(("speculative", "tree", "topkk"), True) == (text, text.index("topkk") + 1)
    assert column(("speculative", "tree", "topkk"), False) == (text, text.index("3") + 1)
    assert column(("sampling", "n"), False) == ("sampling.n=1", 12)
    assert column(("sampling", "n"), True) == ("sampling.n=1", 10)
    assert column(("sampling",), True) == ("sampling.n=1", 1)  # the section exists only because of the override
    assert locate(("target", "model"), False) is None


def test_sweeps_expand_in_order() -> None:
    assert expand_sweep(["a=1,3,5"]) == [["a=1"], ["a=3"], ["a=5"]]
    assert expand_sweep(["a=1,2", "b=x", "c=choice(p,q)"]) == [
        ["a=1", "b=x", "c=p"],
        ["a=1", "b=x", "c=q"],
        ["a=2", "b=x", "c=p"],
        ["a=2", "b=x", "c=q"],
    ]
    assert expand_sweep(["a=range(1,4)"]) == [["a=1"], ["a=2"], ["a=3"]]
    assert expand_sweep(["speculative=glob(eagle*)"], METHODS) == [["speculative=eagle"], ["speculative=eagle3"]]
    assert expand_sweep(["a=[1,2]", "~b"]) == [["a=[1,2]", "~b"]]
    assert expand_sweep([]) == [[]]


@pytest.mark.parametrize(
    "overrides",
    [
        ["a=range(0,100000000)"],
        ["a=interval(0,1)"],
        ["a=1,2", "a=3"],
        ["a=b=c"],
        ["a=range(0,100)", "b=range(0,100)"],
        ["x=glob(*)"],
    ],
)
def test_sweeps_that_cannot_be_expanded(overrides: list[str]) -> None:
    with pytest.raises(OverrideError) as error:
        expand_sweep(overrides)
    assert error.value.diagnostics
    assert MAX_SWEEP == 1000


def test_each_run_of_a_sweep_can_be_applied() -> None:
    runs = [
        applied(*overrides)["speculative"]["num_speculative_tokens"]
        for overrides in expand_sweep(["speculative.num_speculative_tokens=1,3,5"])
    ]
    assert runs == [1, 3, 5]


def test_hydra_writes_nothing_and_an_application_keeps_its_own_state(tmp_path: Path) -> None:
    program = """
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from specdec.config.read.overrides import apply_overrides
ConfigStore.instance().store(group="speculative", name="mine", node={"x": 1})
ConfigStore.instance().store(name="app", node={"defaults": ["_self_", {"speculative": "mine"}]})
with initialize(version_base="1.3", config_path=None):
    assert apply_overrides({}, ["speculative=mtp", "engine.seed=1"], ["mtp"])[0] == {"speculative": {"method": "mtp"}, "engine": {"seed": 1}}
    assert compose("app").speculative.x == 1
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_no_mapping_is_left_to_the_check() -> None:
    assert apply_overrides([1], ["engine.seed=1"], METHODS) == ([1], {}, [])
    assert apply_overrides(None, ["engine.seed=1"], METHODS)[0] == {"engine": {"seed": 1}}
