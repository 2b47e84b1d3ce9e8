"""A small run of ``tests/benchmarks/draws.py``: the first three tokens under modes and speculators follow the exact law.

Seeds are fixed: a run that passes always passes. Whenever draws change, each of the 11 p-values falls below 10^-4 by chance
once in 10^4, so one of them once in 900 changes.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FALSE_ALARM = 1e-4
SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "draws.py"
COUNT, PLAIN = 400, 1536
NAMES = ["ngram, standard", "suffix, block", "draft greedy, standard", "chain, block"]
NAMES += [f"draft probabilistic, {mode}" for mode in ("standard", "block", "coupled")]


@pytest.fixture(scope="module")
def draws():
    spec = importlib.util.spec_from_file_location("draws", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def case(draws, tmp_path_factory):
    """(target, exact law, blocks)"""
    folder = tmp_path_factory.mktemp("draws")
    target = draws.tiny_llama(folder / "target", 1)
    draws.tiny_llama(folder / "draft", 2)
    return target, draws.exact_law(target), draws.blocks(folder / "draft")


@pytest.fixture(scope="module")
def plain(draws, case):
    """Tokens of plain sampling."""
    return draws.sample(case[0], None, PLAIN)[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_tokens_follow_the_exact_law(name, draws, case):
    target, law, blocks = case
    found, rate = draws.sample(target, blocks[name], COUNT)
    assert 0 < rate < 1  # drafts were accepted and rejected
    assert dict(draws.tests_of(found, law, pairs=False))["law"] > FALSE_ALARM


def test_plain_draws_follow_the_law_and_neighbours_are_independent(draws, case, plain):
    assert sum(case[1].values()) == pytest.approx(1.0, abs=1e-12)
    for what, p in draws.tests_of(plain, case[1], pairs=True):
        assert p > FALSE_ALARM, what


def test_laws_and_draws_that_are_off_are_found(draws, case, plain, monkeypatch):
    """Planted faults: another temperature, and neighbours that share a draw once in four times."""
    target, law, _ = case
    monkeypatch.setattr(draws, "TEMPERATURE", 0.75)
    colder = draws.exact_law(target)
    assert dict(draws.tests_of(plain, colder, pairs=False))["law"] < FALSE_ALARM
    shared = [plain[i - 1] if i % 8 == 1 else tokens for i, tokens in enumerate(plain)]
    assert dict(draws.tests_of(shared, law, pairs=True))["independent, 1 apart"] < FALSE_ALARM
