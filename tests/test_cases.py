"""Runs the conformance cases of tests/cases: what a person gives, and what must come out."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import specdec
from specdec.config.final.speculative_config import Resolution
from specdec.config.final.speculative_config import plain as plain_data
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.language.options_model import option_model, validate_options

CASES = Path(__file__).parent / "cases"
GIVEN = (
    "user",
    "target",
    "draft",
    "target_tensors",
    "draft_tensors",
    "engine",
    "target_settings",
    "sampling",
    "overrides",
)
KNOWN = {*GIVEN, "id", "about", "files", "run", "strict", "want", "also", "config"}
CANNOT, GUESSED = (
    re.compile(r"cannot be (loaded|run|used)"),
    re.compile(r"(?<!our )\bguess"),
)  # words and severity agree
EXPECTATIONS = {"errors", "warnings", "notes", "absent", "values", "provenance", "same_as"}


def load_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every case and every variation, as (id, complete case)."""
    for file in sorted(CASES.glob("*.yaml")):
        if file.name == "engine_only.yaml":
            continue
        for base in yaml.safe_load(file.read_text(encoding="utf-8")):
            variations = base.get("also", [])
            yield base["id"], {k: v for k, v in base.items() if k != "also"}
            for number, change in enumerate(variations, 1):
                yield f"{base['id']}/{change.get('id', number)}", vary(base, change)


def vary(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    case = copy.deepcopy({k: v for k, v in base.items() if k != "also"})
    for key, value in change.items():
        if key.endswith("+"):
            case[key[:-1]] = {**(case.get(key[:-1]) or {}), **value}
        else:
            case[key] = value
    return case


def run(case: Mapping[str, Any], folder: Path) -> Resolution:
    """The resolution of a case."""
    inputs: dict[str, Any] = copy.deepcopy(
        {
            "overrides": case.get("overrides", ()),
            "target_config": case.get("target"),
            "draft_config": case.get("draft"),
            "target_tensors": case.get("target_tensors"),
            "draft_tensors": case.get("draft_tensors"),
            "strict": case.get("strict", False),
        }
    )
    if "run" in case:
        for name, text in case.get("files", {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return specdec.resolve(folder / case["run"], **inputs)
    if "config" in case:
        return specdec.resolve(copy.deepcopy(case["config"]), **inputs)
    config: dict[str, Any] = {"speculative": copy.deepcopy(case.get("user"))}
    for section, key in (("engine", "engine"), ("target", "target_settings"), ("sampling", "sampling")):
        if key in case:
            config[section] = copy.deepcopy(case[key])
    return specdec.resolve(config, **inputs)


def matches(found: Diagnostic, wanted: Mapping[str, Any]) -> bool:
    text = f"{found.message} {found.fix or ''}"
    return (
        found.code == wanted["code"]
        and ("at" not in wanted or found.path == wanted["at"])
        and all(str(word) in text for word in wanted.get("says", ()))
        and all(str(word) in (found.fix or "") for word in wanted.get("fix_says", ()))
        and not any(str(word) in text for word in wanted.get("never_says", ()))
        and ("line" not in wanted or (found.source is not None and found.source.line == wanted["line"]))
        and ("column" not in wanted or (found.source is not None and found.source.column == wanted["column"]))
    )


def show(result: Resolution) -> str:
    return (
        "\n".join(f"  {d.severity}[{d.code}] {d.path}: {d.message} | fix: {d.fix}" for d in result.diagnostics)
        or "  no findings"
    )


def plain(value: Any) -> Any:
    return plain_data(value) if isinstance(value, (Mapping, tuple)) else value


@pytest.mark.parametrize(("name", "case"), load_cases(), ids=lambda value: value if isinstance(value, str) else "")
def test_case(name: str, case: dict[str, Any], tmp_path: Path) -> None:
    assert set(case) <= KNOWN, f"unknown keys in the case: {set(case) - KNOWN}"
    want = {} if case["want"] == "ok" else case["want"]
    assert set(want) <= EXPECTATIONS, f"unknown expectations: {set(want) - EXPECTATIONS}"
    result = run(case, tmp_path)
    found = show(result)
    assert (result.config is None) == bool(result.errors), f"no configuration and no reason, or both\n{found}"

    for d in result.diagnostics:
        assert not CANNOT.search(d.message) or d.severity == "error", f"what cannot run is no {d.severity}\n{found}"
        assert not GUESSED.search(d.message) or d.severity == "warning" or case.get("strict"), (
            f"a guess is a warning\n{found}"
        )
    for config in [result.config, *result.config.members] if result.config else []:
        assert isinstance(config.options, option_model(config.record)), "options are the record's typed model"
        assert validate_options(config.record, plain_data(config.options))[1] == []

    wanted_errors = want.get("errors", [])
    assert len(result.errors) == len(wanted_errors), f"{len(wanted_errors)} errors wanted\n{found}"
    for severity, list_of_wanted in (
        ("error", wanted_errors),
        ("warning", want.get("warnings", [])),
        ("note", want.get("notes", [])),
    ):
        for wanted in list_of_wanted:
            hits = [d for d in result.diagnostics if d.severity == severity and matches(d, wanted)]
            assert len(hits) == 1, f"wanted one {severity} {wanted}\n{found}"
    codes = {d.code for d in result.diagnostics}
    assert not codes & set(want.get("absent", ())), f"unwanted {codes & set(want['absent'])}\n{found}"
    if wanted_errors:
        assert result.config is None
        return

    config = result.unwrap()
    missing = object()
    for path, value in want.get("values", {}).items():
        assert plain(config.get(path, missing)) == value, f"{path}\n{found}"
    for path, origin in want.get("provenance", {}).items():
        assert path in result.provenance, f"{path} has no origin; there are {sorted(result.provenance)}"
        actual = result.provenance[path]
        assert actual.kind == origin["kind"], f"{path}: {actual}"
        if "detail" in origin:
            assert origin["detail"] in actual.detail, f"{path}: {actual}"
        if "inputs" in origin:
            assert list(actual.inputs) == origin["inputs"], f"{path}: {actual}"
        if "over" in origin:
            assert [value for _, value in actual.over] == origin["over"], f"{path}: {actual}"
    if "same_as" in want:
        other = run(vary(case, want["same_as"]), tmp_path).unwrap()
        assert other == config
        assert other.config_hash == config.config_hash


def test_case_ids_are_unique() -> None:
    names = [name for name, _ in load_cases()]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})
