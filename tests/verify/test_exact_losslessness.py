"""Losslessness is proved by enumeration with fractions, and planted bugs must break the proof."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as F

import pytest

from specdec.verify import laws
from specdec.verify.exact import continue_with_target, mean_length, round_law, total_variation
from specdec.verify.round import residual_token
from specdec.verify.rules.block import block
from specdec.verify.rules.coupled import coupled
from specdec.verify.rules.fly import fly
from specdec.verify.rules.greedy import greedy
from specdec.verify.rules.standard import standard
from specdec.verify.rules.synthetic import synthetic

V = 3


def random_law(rng, zeros):
    while True:
        w = [0 if rng.random() < zeros else rng.randint(1, 12) for _ in range(V)]
        if sum(w):
            return [F(x, sum(w)) for x in w]


def models(k, seed, zeros=0.25, one_hot=False, same=False):
    rng = random.Random(seed)
    target, draft = {}, {}
    for n in range(k + 2):
        for prefix in itertools.product(range(V), repeat=n):
            target[prefix] = random_law(rng, zeros)
            if one_hot:
                d = rng.randrange(V)
                draft[prefix] = [F(int(x == d)) for x in range(V)]
            else:
                draft[prefix] = target[prefix] if same and rng.random() < 0.5 else random_law(rng, zeros)
    return target, draft


def distance(rule, target, draft, k, **kw):
    law = round_law(rule, target, draft, V, k, **kw)
    assert sum(law.values()) == 1
    truth = continue_with_target({(): F(1)}, target, k + 1)
    return total_variation(continue_with_target(law, target, k + 1), truth)


FAMILIES = {
    "sparse": {},
    "dense": {"zeros": 0},
    "mostly zero": {"zeros": 0.6},
    "half identical": {"same": True},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rule", [standard, block, coupled], ids=lambda r: r.__name__)
def test_output_law_is_the_targets(rule, family):
    for k, seed in [(1, 0), (2, 1), (2, 2), (3, 3)]:
        assert distance(rule, *models(k, seed, **FAMILIES[family]), k) == 0


@pytest.mark.parametrize("rule", [standard, block, coupled], ids=lambda r: r.__name__)
def test_one_hot_drafts_keep_the_law(rule):
    for k, seed in [(1, 0), (2, 1), (3, 2), (3, 3)]:
        target, draft = models(k, seed, one_hot=True)
        assert distance(rule, target, draft, k, one_hot=True) == 0
        assert distance(rule, target, draft, k, one_hot=False) == 0


def test_one_hot_means_the_drafter_may_choose_in_any_way():
    # drafts that are drawn, but verified as one-hot, cost acceptance and not the law
    target, draft = models(2, 5)
    for rule in (standard, block, coupled):
        assert distance(rule, target, draft, 2, one_hot=True) == 0


def test_greedy_emits_the_argmax_path_with_ties_to_the_lowest_id():
    half = {p: [F(2, 5), F(2, 5), F(1, 5)] for n in range(4) for p in itertools.product(range(V), repeat=n)}
    _, draft = models(3, 1, zeros=0)
    law = round_law(greedy, half, draft, V, 3)
    assert all(all(x == 0 for x in tokens) for tokens in law)
    assert max(map(len, law)) == 4


def test_block_accepts_more_than_standard_and_the_same_for_one_hot():
    third, two = F(1, 3), F(2, 3)
    target = {p: [third, two] for n in range(5) for p in itertools.product(range(2), repeat=n)}
    draft = {p: [two, third] for p in target}
    expected = {1: (F(2, 3), F(2, 3)), 2: (F(10, 9), F(11, 9)), 3: (F(38, 27), F(45, 27))}
    for k, (by_standard, by_block) in expected.items():
        assert mean_length(round_law(standard, target, draft, 2, k)) - 1 == by_standard
        assert mean_length(round_law(block, target, draft, 2, k)) - 1 == by_block
    target, draft = models(3, 7, one_hot=True)
    lengths = [mean_length(round_law(rule, target, draft, V, 3, one_hot=True)) for rule in (standard, block)]
    assert lengths[0] == lengths[1]


def test_stopping_before_or_after_a_weak_token_is_lossless():
    target, draft = models(3, 1, zeros=0)

    def before_token(tokens):  # decided from the law, before the token is seen
        return next((i for i in range(3) if max(draft[tokens[:i]]) < F(1, 2)), 3)

    def after_token(tokens):  # the weak token itself is still verified
        return next((i + 1 for i in range(3) if draft[tokens[:i]][tokens[i]] < F(2, 5)), 3)

    for rule in (standard, block):
        assert distance(rule, target, draft, 3, shorten=before_token) == 0
        assert distance(rule, target, draft, 3, shorten=after_token) == 0


def test_lossy_rules_are_lossy_and_synthetic_has_the_promised_length():
    target, draft = models(3, 2, zeros=0)
    rates = [0.5, 0.25, 0.125]
    law = round_law(synthetic(rates), target, draft, V, 3, one_hot=True)
    assert mean_length(law) == 1 + F(7, 8)
    assert distance(synthetic(rates), target, draft, 3, one_hot=True) > 0
    assert distance(fly(window=1), target, draft, 3) > 0
    assert distance(fly(window=1, entropy_threshold=9.0), target, draft, 3) == 0
    assert mean_length(round_law(fly(window=1), target, draft, V, 3)) > mean_length(
        round_law(standard, target, draft, V, 3)
    )


# --- planted bugs -----------------------------------------------------------------------------------------------


def standard_variant(accept=laws.standard_acceptance, correct=residual_token, bonus_row=0):
    def rule(r):
        for row, token in enumerate(r.drafts):
            if not r.accept(row, accept(r.target_prob(row, token), r.draft_prob(row, token))):
                return [*r.drafts[:row], correct(r, row)]
        return [*r.drafts, r.draw_target(len(r.drafts) + bonus_row)]

    return rule


def no_zeroing(r, row):
    return r.draw_residual(row, r.target_law(row))


def block_without_scale(r):
    class Unscaled:
        def __getattr__(self, name):
            return getattr(r, name)

        def draw_residual(self, row, weights):
            return r.draw_residual(row, laws.residual(r.target_law(row), r.draft_law(row)))

    return block(Unscaled())


def inverted_accept(p_x, q_x):  # accept when p > u, whatever q
    return p_x


BUGS = {
    "residual keeps the rejected mass": (standard_variant(correct=no_zeroing), {}),
    "acceptance ignores q": (standard_variant(accept=inverted_accept), {}),
    "bonus row off by one": (standard_variant(bonus_row=-1), {}),
    "block residual without rho": (block_without_scale, {}),
    "sampled drafts verified with p/q against a stale residual": (
        standard_variant(correct=lambda r, row: r.draw_residual(row, r.target_law(max(row - 1, 0)))),
        {},
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug):
    rule, kw = BUGS[bug]
    target, draft = models(3, 1, zeros=0)
    assert distance(rule, target, draft, 3, **kw) > 0


def test_one_hot_residual_must_drop_the_draft():
    target, draft = models(2, 4, zeros=0, one_hot=True)
    assert distance(standard_variant(correct=no_zeroing), target, draft, 2, one_hot=True) > 0


@pytest.mark.parametrize("rule", [standard, block], ids=lambda r: r.__name__)
def test_dropping_a_token_after_looking_at_it_is_caught(rule):
    target, draft = models(3, 1, zeros=0)

    def drop(tokens):
        return next((i for i in range(3) if draft[tokens[:i]][tokens[i]] < F(2, 5)), 3)

    assert distance(rule, target, draft, 3, shorten=drop) > F(1, 20)


def test_turning_forbidden_drafts_into_placeholders_is_lossless_only_for_one_hot():
    target, draft = models(1, 6, zeros=0)
    target[()] = [F(1, 2), F(1, 2), F(0)]
    draft[()] = [F(1, 2), F(0), F(1, 2)]

    def forbid(tokens):
        return 0 if tokens[0] == 2 else 1

    assert distance(standard, target, draft, 1) == 0
    assert distance(standard, target, draft, 1, shorten=forbid) == F(1, 4)
    assert distance(standard, target, draft, 1, shorten=forbid, one_hot=True) == 0


def test_highest_id_on_ties_is_caught():
    def last_argmax(r):
        law = list(r.target_law(0))
        return [max(range(V), key=lambda x: (law[x], x))]

    tied = {p: [F(2, 5), F(2, 5), F(1, 5)] for n in range(3) for p in itertools.product(range(V), repeat=n)}
    plain = {t[:1] for t in round_law(greedy, tied, tied, V, 0)}
    assert {t[:1] for t in round_law(last_argmax, tied, tied, V, 0)} != plain


def test_acceptance_of_edge_probabilities():
    assert laws.standard_acceptance(F(0), F(1, 2)) == 0
    assert laws.standard_acceptance(F(1, 2), F(0)) == 1
    assert laws.standard_acceptance(F(0), F(0)) == 0
    assert laws.standard_acceptance(F(1, 2), F(1, 2)) == 1
    assert laws.block_acceptance(F(1), F(0)) == 1
    assert laws.rates_for_length(2.6, 3) == pytest.approx([1, 0.6, 0])
    assert laws.conditional_rates([0.8, 0.4, 0, 0]) == [0.8, 0.5, 0.0, 0.0]
