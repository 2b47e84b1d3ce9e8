"""Exact output laws of verification rules on small models, by enumeration with fractions: proofs without sampling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Prefix = tuple[int, ...]
Model = Mapping[Prefix, Sequence[Fraction]]  # prefix -> law of the next token
Law = dict[Prefix, Fraction]
Rule = Callable[[Any], list[int]]


class ExactRound:
    """A Round over fractions that takes the branches a tape names, and notes how many there were."""

    def __init__(self, target: Model, draft: Model, drafts: Sequence[int], one_hot: bool, tape: Sequence[int]) -> None:
        self.target, self.draft, self.drafts, self.one_hot = target, draft, list(drafts), one_hot
        self.tape, self.probability = list(tape), Fraction(1)
        self.widths: list[int] = []

    def _branch(self, options: list[tuple[Any, Fraction]]) -> Any:
        options = [(value, weight) for value, weight in options if weight]
        depth = len(self.widths)
        if depth == len(self.tape):
            self.tape.append(0)
        self.widths.append(len(options))
        value, weight = options[self.tape[depth]]
        self.probability *= weight
        return value

    def argmax(self, row: int) -> int:
        law = list(self.target_law(row))
        return law.index(max(law))

    def target_law(self, row: int) -> np.ndarray:
        return np.array(self.target[tuple(self.drafts[:row])], dtype=object)

    def target_prob(self, row: int, token: int) -> Fraction:
        return self.target_law(row)[token]

    def draft_law(self, row: int) -> np.ndarray:
        return np.array(self.draft[tuple(self.drafts[:row])], dtype=object)

    def draft_prob(self, row: int, token: int) -> Fraction:
        return Fraction(1) if self.one_hot else self.draft_law(row)[token]

    def entropy(self, row: int, top_k: int) -> float:
        top = np.sort(np.array(self.target_law(row), dtype=float))[-top_k:]
        top = top[top > 0] / top.sum()
        return float(-(top * np.log(top)).sum())

    def accept(self, row: int, probability: Any) -> bool:
        a = Fraction(probability)
        assert 0 <= a <= 1
        return self._branch([(True, a), (False, 1 - a)])

    def draw_residual(self, row: int, weights: Any) -> int:
        total = sum(weights)
        assert total > 0, "a rejection of positive probability left an empty residual"
        return self._branch([(token, Fraction(w) / total) for token, w in enumerate(weights)])

    def draw_target(self, row: int) -> int:
        return self._branch(list(enumerate(self.target_law(row))))


def rule_outcomes(
    rule: Rule, target: Model, draft: Model, drafts: Sequence[int], one_hot: bool = False
) -> Iterator[tuple[Prefix, Fraction]]:
    """Every (emitted tokens, probability) of one round on fixed drafts."""
    tape: list[int] = []
    while True:
        r = ExactRound(target, draft, drafts, one_hot, tape)
        emitted = tuple(rule(r))
        yield emitted, r.probability
        tape = r.tape[: len(r.widths)]
        while tape and tape[-1] + 1 == r.widths[len(tape) - 1]:
            tape.pop()
        if not tape:
            return
        tape[-1] += 1


def round_law(
    rule: Rule,
    target: Model,
    draft: Model,
    vocab_size: int,
    k: int,
    *,
    one_hot: bool = False,
    shorten: Callable[[Prefix], int] = len,
) -> Law:
    """Law of the tokens that one round emits, drafts drawn from ``draft``; ``shorten(drafts)`` of them are verified."""
    out: Law = {}
    for drafts in itertools.product(range(vocab_size), repeat=k):
        weight = Fraction(1)
        for i, token in enumerate(drafts):
            weight *= draft[drafts[:i]][token]
        if not weight:
            continue
        for emitted, probability in rule_outcomes(rule, target, draft, drafts[: shorten(drafts)], one_hot):
            out[emitted] = out.get(emitted, Fraction(0)) + weight * probability
    return {tokens: mass for tokens, mass in out.items() if mass}


def continue_with_target(law: Law, target: Model, length: int) -> Law:
    """Extend shorter outcomes by draws from the target, so that all have ``length`` tokens."""
    out: Law = {}
    stack = list(law.items())
    while stack:
        tokens, mass = stack.pop()
        if len(tokens) == length:
            out[tokens] = out.get(tokens, Fraction(0)) + mass
        else:
            stack += [((*tokens, x), mass * p) for x, p in enumerate(target[tokens]) if p]
    return out


def total_variation(a: Law, b: Law) -> Fraction:
    """Half the L1 distance of two laws."""
    return sum((abs(a.get(x, Fraction(0)) - b.get(x, Fraction(0))) for x in {*a, *b}), Fraction(0)) / 2


def mean_length(law: Law) -> Fraction:
    """Mean number of emitted tokens."""
    return sum((len(tokens) * mass for tokens, mass in law.items()), Fraction(0))
