"""Adaptive verification: the exact law of what is emitted, its planted faults, and a run of the engine."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from fractions import Fraction as F
from types import SimpleNamespace

import pytest
import torch

from specdec.engine.llm import LLM
from specdec.engine.policy import lengths
from specdec.engine.policy.confidences import certainty
from specdec.engine.policy.controller import DraftController
from specdec.engine.policy.lengths import admit, choose_budget, choose_lengths
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.verify.exact import continue_with_target, round_law, total_variation
from specdec.verify.rules.block import block
from specdec.verify.rules.standard import standard

TARGET = {(): [F(7, 10), F(3, 10)], (0,): [F(2, 5), F(3, 5)], (1,): [F(3, 5), F(2, 5)]}
TARGET |= {prefix: [F(1, 3), F(2, 3)] for prefix in itertools.product((0, 1), repeat=2)}
DRAFT = {(): [F(1, 2)] * 2, (0,): [F(9, 10), F(1, 10)], (1,): [F(1, 4), F(3, 4)]}
COSTS = SimpleNamespace(seconds=lambda rows: {1: 1.0, 2: 1 / 0.5, 3: 1 / 0.45}[rows])  # 1, 0.5, 0.45 steps a second


def emitted(shorten, rule=standard):
    return round_law(rule, TARGET, DRAFT, 2, 2, shorten=shorten)


def first_token(shorten, rule=standard):
    """Law of the first token; the target's is (0.70, 0.30)."""
    law = emitted(shorten, rule)
    out = [F(0), F(0)]
    for tokens, mass in law.items():
        out[tokens[0]] += mass
    return out


def distance(shorten, rule=standard):
    plain = continue_with_target({(): F(1)}, TARGET, 3)
    return total_variation(continue_with_target(emitted(shorten, rule), TARGET, 3), plain)


def sees_the_first(drafts):
    """Confidences of which the second looks at the first draft, as it may."""
    return [0.8, 0.9 if drafts[0] == 0 else 0.0]


@pytest.mark.parametrize("rule", [standard, block], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("budget", range(5))
@pytest.mark.parametrize("rival", [[0.8, 0.5], [0.78, 0.78], [1.0, 1.0]])
def test_rows_that_were_counted_before_keep_the_law(rule, budget, rival):
    for mine in (sees_the_first, lambda drafts: [1.0, 1.0 if drafts[0] == 0 else 0.0]):
        for first in (True, False):

            def shorten(drafts, mine=mine, first=first):
                rows = [mine(drafts), rival] if first else [rival, mine(drafts)]
                return admit(rows, [1, 1], budget)[0 if first else 1]

            assert distance(shorten, rule) == 0


def test_the_early_stop_keeps_the_law_and_looking_ahead_does_not():
    def shorten(patient):
        return lambda drafts: choose_lengths([sees_the_first(drafts)], [1], COSTS, patient=patient)[0]

    assert distance(shorten(False)) == 0
    assert first_token(shorten(True)) == [F(85, 100), F(15, 100)]
    assert first_token(lambda drafts: choose_budget([sees_the_first(drafts)], [1], COSTS)) == [F(85, 100), F(15, 100)]


def test_ties_that_go_to_later_steps_bias_the_text(monkeypatch):
    def shorten(drafts):
        mine = [1.0, 1.0 if drafts[0] == 0 else 0.0]  # saturated, as sure heads and greedy rows are
        return admit([[1.0], mine], [1, 1], 1)[1]

    assert first_token(shorten) == [F(7, 10), F(3, 10)]
    monkeypatch.setattr(lengths, "rank", lambda survival, step, request: (-survival, -step, request))
    assert first_token(shorten) == [F(85, 100), F(15, 100)]


def test_scoring_or_dropping_the_drawn_token_biases_the_text():
    drawn = {(): [F(3, 5), F(2, 5)], **{p: DRAFT[p] for p in ((0,), (1,))}}

    def law(shorten):
        out = [F(0), F(0)]
        for tokens, mass in round_law(standard, TARGET, drawn, 2, 2, shorten=shorten).items():
            out[tokens[0]] += mass
        return out

    def by_drawn_token(drafts):  # the probability of what was drawn in place of the largest one
        return admit([[float(drawn[()][drafts[0]])], [0.5]], [1, 1], 1)[0]

    def by_largest(drafts):
        return admit([[float(max(drawn[()]))], [0.5]], [1, 1], 1)[0]

    assert law(by_largest) == [F(7, 10), F(3, 10)]
    # token 0 (q = 0.6) is always verified and accepted, token 1 never verified
    assert law(by_drawn_token) == [F(3, 5) + F(2, 5) * F(7, 10), F(2, 5) * F(3, 10)] == [F(88, 100), F(12, 100)]
    assert law(lambda drafts: 0 if drawn[()][drafts[0]] < F(1, 2) else 1) == [F(88, 100), F(12, 100)]


@dataclass
class Drawn:
    """A request whose drafts were sampled."""

    index: int
    drafts: list[int]
    confidences: list[float]
    drafts_free: bool = False
    draft_logits: object = field(default_factory=lambda: torch.zeros(2, 2))


def warmed(seconds, **options):
    """A controller that knows what rows cost and has seen rounds of both requests."""
    controller = DraftController(2, **options)
    for rows in (2, 3, 4, 5, 6) * 6:
        controller.observe_forward(2, rows, seconds(rows), 0.0)
    for _ in range(4):
        controller.observe_forward(2, 2, seconds(2), 0.0)
    return controller


@pytest.mark.parametrize("rule", [standard, block], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("options", [{"throughput": True}, {}, {"threshold": 0.5}, {"widths": lambda width: width}])
def test_what_the_policy_decides_keeps_the_law(options, rule):
    """The policy itself, in the second of two rounds of two requests, for curves that are steep, flat or have a knee."""
    lengths_seen = set()
    for seconds in (lambda rows: 1.0, lambda rows: 0.4 * rows, lambda rows: 1.0 if rows <= 4 else 2.0):

        def shorten(drafts, seconds=seconds):
            controller = warmed(seconds, **options)
            for mine in ([0.95, 0.9], sees_the_first(drafts)):
                requests = [Drawn(0, [0, 0], [0.85, 0.7]), Drawn(1, list(drafts), list(mine))]
                for request in requests:
                    controller.choose(request, 2)
                controller.trim(requests)
                kept = len(requests[1].drafts)
                for request in requests:
                    controller.observe(request, len(request.drafts), len(request.drafts))
            lengths_seen.add(kept)
            return kept

        assert distance(shorten, rule) == 0
    assert len(lengths_seen) > 1


def test_certainty_is_the_log_odds_of_the_likeliest_token():
    logits = torch.tensor([[2.0, 0.0, 0.0], [50.0, -50.0, -50.0]])
    p = float(torch.softmax(logits[0] / 0.5, -1)[0])
    first, second = certainty(logits, 0.5)
    assert first == pytest.approx(torch.logit(torch.tensor(p)).item(), abs=1e-4) and second == 40.0


def test_an_estimate_does_not_look_at_the_drawn_token():
    logits, verified = torch.tensor([[2.0, 1.0, 0.5], [0.3, 0.2, 0.1]]), set()
    for drafts in itertools.product(range(3), repeat=2):
        controller = warmed(lambda rows: 0.4 * rows, throughput=True)
        request = Drawn(0, list(drafts), None, draft_logits=logits)
        request.params = SimpleNamespace(temperature=1.0)
        controller.choose(request, 1)
        controller.trim([request])
        verified.add(len(request.drafts))
    assert len(verified) == 1


def test_a_run_with_trimmed_drafts_gives_the_same_greedy_text(tiny, scripted):
    model = tiny("llama")
    prompts = [[3, 14, 15], [31], [8, 8, 8]]
    greedy = SamplingParams(temperature=0.0, max_tokens=20)
    want = [o.outputs[0].token_ids for o in LLM(model, max_model_len=64).generate(prompts, greedy)]
    controller = DraftController(4, throughput=True)
    controller.measured.step = lambda requests, rows: 1.0 if rows <= 6 else 5.0
    drafts = scripted(lambda known, k: known[-k:], k=4)
    llm = LLM(model, speculator=drafts, controller=controller, max_num_seqs=3, max_model_len=64)
    outputs = llm.generate(prompts, greedy)
    assert [o.outputs[0].token_ids for o in outputs] == want
    decoding = [b for b in llm.speculator.batches if len(b.slots) == 3 and int(b.positions.min()) > 0]
    assert decoding and max(len(b.token_ids) for b in decoding) <= 6
    assert sum(controller.confidences.by_position.trials) > 0
