"""Adaptive verification: what is cut, the exact law of what is emitted, and a run of the engine."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.policy.adaptive import AdaptiveVerification, MeasuredRowCosts, certainty, choose_lengths
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.verify.exact import continue_with_target, round_law, total_variation
from specdec.verify.rules.standard import standard


class Table:
    """Seconds by rows, made up."""

    def __init__(self, seconds):
        self.table = seconds

    def seconds(self, rows):
        return self.table(rows)

    def observe(self, rows, seconds):
        pass


def test_free_rows_verify_everything_and_dear_rows_nothing():
    confidences = [[0.9, 0.8], [0.3, 0.1, 0.05]]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: 1.0)) == [2, 3]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: float(rows))) == [0, 0]
    assert choose_lengths(confidences, [1, 1], Table(lambda rows: None)) == [2, 3]


def test_rows_go_to_the_drafts_that_are_likeliest_to_survive():
    # two rows are free, a third doubles the cost
    costs = Table(lambda rows: 1.0 if rows <= 5 else 2.0)
    assert choose_lengths([[0.9, 0.9], [0.5, 0.4], [0.95, 0.1]], [1, 1, 1], costs) == [1, 0, 1]
    assert choose_lengths([[0.9, 0.9], [], [0.2, 0.1]], [1, 1, 1], costs) == [2, 0, 0]


def test_patience_looks_past_a_dear_row_and_a_limit_holds():
    costs = Table(lambda rows: 1.0 if rows == 1 else 2.0)  # the second row is dear, all further ones are free
    assert choose_lengths([[0.9] * 6], [1], costs) == [0]
    assert choose_lengths([[0.9] * 6], [1], costs, patient=True) == [6]
    assert choose_lengths([[0.9] * 6], [1], costs, patient=True, most=5) == [5]
    assert choose_lengths([[0.9], [0.8]], [1, 1], Table(lambda rows: 1.0), most=1) == [1, 0]


def test_ties_go_to_earlier_steps():
    costs = Table(lambda rows: 1.0 if rows <= 4 else 9.0)
    assert choose_lengths([[1.0, 1.0], [1.0, 1.0]], [1, 1], costs) == [1, 1]


@pytest.mark.parametrize("free", range(4))
def test_the_emitted_law_is_the_targets(free):
    """Exact: the confidence of the second draft depends on the first one; cutting by it changes nothing."""
    a, b = Fraction(7, 10), Fraction(2, 5)
    target = {(): [a, 1 - a], (0,): [b, 1 - b], (1,): [1 - b, b]}
    target |= {p: [Fraction(1, 3), Fraction(2, 3)] for p in itertools.product((0, 1), repeat=2)}
    draft = {(): [Fraction(1, 2)] * 2, (0,): [Fraction(9, 10), Fraction(1, 10)], (1,): [Fraction(1, 4), Fraction(3, 4)]}
    costs = Table(lambda rows: 1.0 if rows <= 2 + free else 100.0)

    def shorten(drafts):
        # another request competes; the confidence of step 2 looks at draft 1, never at draft 2
        mine = [0.8, 0.95 if drafts[0] == 0 else 0.0]
        return choose_lengths([mine, [0.78, 0.5]], [1, 1], costs)[0]

    law = round_law(standard, target, draft, 2, 2, shorten=shorten)
    plain = continue_with_target({(): Fraction(1)}, target, 3)
    assert total_variation(continue_with_target(law, target, 3), plain) == 0


def test_certainty_is_the_log_odds_of_the_likeliest_token():
    logits = torch.tensor([[2.0, 0.0, 0.0], [50.0, -50.0, -50.0]])
    p = float(torch.softmax(logits[0] / 0.5, -1)[0])
    first, second = certainty(logits, 0.5)
    assert first == pytest.approx(torch.logit(torch.tensor(p)).item(), abs=1e-4) and second == 40.0


def test_measured_costs_are_monotone_and_interpolated():
    costs = MeasuredRowCosts()
    assert costs.seconds(1) is None
    for rows, seconds in ((1, 1.0), (1, 9.0), (1, 1.0), (4, 0.5), (8, 3.0)):
        costs.observe(rows, seconds)
    assert [costs.seconds(n) for n in (1, 2, 4, 6, 8, 10)] == [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]


def test_a_run_with_trimmed_drafts_gives_the_same_greedy_text(tiny, scripted):
    model = tiny("llama")
    prompts = [[3, 14, 15], [31], [8, 8, 8]]
    greedy = SamplingParams(temperature=0.0, max_tokens=20)
    want = [o.outputs[0].token_ids for o in LLM(model, max_model_len=64).generate(prompts, greedy)]
    llm = LLM(model, speculator=scripted(lambda known, k: known[-k:], k=4), max_num_seqs=3, max_model_len=64)
    adaptive = llm.engine.runner.adaptive = AdaptiveVerification(4, Table(lambda rows: 1.0 if rows <= 6 else 5.0))
    outputs = llm.generate(prompts, greedy)
    assert [o.outputs[0].token_ids for o in outputs] == want
    decoding = [b for b in llm.speculator.batches if len(b.slots) == 3 and int(b.positions.min()) > 0]
    assert decoding and max(len(b.token_ids) for b in decoding) <= 6
    assert sum(adaptive.by_position.trials) > 0
