"""The draft controller on simulated requests: bounded loss, most of the gain, recovery, and reproducible choices."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from specdec.engine.policy.controller import DraftController
from specdec.engine.policy.step_costs import NominalCosts

PLAIN = 0.010  # seconds


@dataclass
class FakeRequest:
    index: int
    drafts: list[int] = field(default_factory=list)
    draft_logits: object = None
    confidences: list[float] | None = None
    drafts_free: bool = False


def flat(rows: int) -> float:
    return PLAIN * (1 + 0.02 * (rows - 1))


def steep(rows: int) -> float:
    return PLAIN * (1 + 0.15 * (rows - 1))


@dataclass
class World:
    """A drafter and a target: acceptance by output position, and what steps cost."""

    acceptance: Callable[[int], float]
    verify_seconds: Callable[[int], float] = steep
    draft_seconds: Callable[[int], float] = lambda k: 0.0
    match: float = 1.0  # chance that the drafter drafts at all
    noise: float = 0.05
    disturbed: float = 0.02  # share of steps that take a multiple
    confidence: Callable[[int], float] | None = None  # by output position

    def run(self, controller, index: int, tokens: int, seed: int = 0, k: int = 5) -> tuple[float, list[int]]:
        """Time for ``tokens`` tokens over that of plain decoding, undisturbed, and the verified drafts of each step."""
        rng = random.Random(seed)
        request, emitted, seconds, verified = FakeRequest(index), 1, 0.0, []
        while emitted < tokens:
            wanted = controller.choose(request) if controller else k
            drawn = wanted if rng.random() < self.match else 0
            request.drafts = [0] * max(0, min(drawn, tokens - emitted - 1))
            if self.confidence:
                request.confidences = [self.confidence(emitted)] * len(request.drafts)
            if controller:
                controller.trim([request])
            drafted, accepted = len(request.drafts), 0
            while accepted < drafted and rng.random() < self.acceptance(emitted + accepted):
                accepted += 1
            draft, verify = self.draft_seconds(wanted), self.verify_seconds(drafted + 1)
            if controller:
                seen = rng.uniform(1 - self.noise, 1 + self.noise)
                seen *= rng.uniform(2, 20) if rng.random() < self.disturbed else 1.0
                controller.observe(request, drafted, accepted)
                controller.observe_forward(1, drafted + 1, verify * seen, draft * seen)
            verified.append(drafted)
            seconds += draft + verify
            emitted += accepted + 1
        if controller:
            controller.finish(request)
        return seconds / ((tokens - 1) * PLAIN), verified


def model(k: int) -> float:
    return 0.4 * PLAIN * k


DEAR = NominalCosts(draft_per_token=0.4)
DRAFTERS = {
    "lookup": (flat, lambda k: 0.0, 0.5, None),
    "lookup, steep": (steep, lambda k: 0.0, 0.5, None),
    "lookup, always": (steep, lambda k: 0.0, 1.0, None),
    "model": (flat, model, 1.0, DEAR),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("tokens", [64, 128, 512])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_a_bad_drafter_costs_at_most_the_budget(name: str, tokens: int, rate: float) -> None:
    verify, draft, match, nominal = DRAFTERS[name]
    controller = DraftController(5, nominal=nominal)
    world = World(lambda _: rate, verify, draft, match)
    ratios = [world.run(controller, i, tokens, seed=i)[0] for i in range(12)]
    assert sum(ratios) / len(ratios) < 1.02
    assert max(ratios) < 1.03


@pytest.mark.parametrize("confidence", [0.3, 0.6, 0.97, 1.0])
@pytest.mark.parametrize("reproducible", [False, True])
def test_confidences_that_are_wrong_cost_at_most_the_budget(confidence: float, reproducible: bool) -> None:
    controller = DraftController(12, is_reproducible=lambda request: reproducible)
    world = World(lambda _: 0.05, steep, confidence=lambda _: confidence)
    assert max(world.run(controller, i, 64, seed=i)[0] for i in range(8)) < 1.03


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(
    "acceptance",
    [
        lambda p: 0.98 if p < 20 else 0.0,
        lambda p: 0.0 if p < 20 else 0.98,
        lambda p: 0.98 if p % 20 < 10 else 0.0,
        lambda p: 0.98 if p % 2 else 0.0,
        lambda p: 0.98 if p % 60 < 12 else 0.05,
    ],
    ids=["collapses", "wakes up", "alternates", "every other", "bursts"],
)
def test_no_process_of_acceptance_costs_more_than_the_budget(acceptance, reproducible: bool) -> None:
    for confidence in (None, lambda p: 0.5, lambda p: 1.0 - acceptance(p)):  # the last one misleads on purpose
        controller = DraftController(12, is_reproducible=lambda request: reproducible)
        world = World(acceptance, steep, confidence=confidence)
        for tokens in (64, 200, 600):
            assert max(world.run(controller, 9 * tokens + i, tokens, seed=i)[0] for i in range(6)) < 1.03


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_good_drafter_keeps_its_gain(name: str) -> None:
    verify, draft, match, nominal = DRAFTERS[name]
    world = World(lambda _: 0.9, verify, draft, match)
    controller = DraftController(5, nominal=nominal)
    ratio = sum(world.run(controller, i, 256, seed=i)[0] for i in range(8)) / 8
    always = sum(min(world.run(None, i, 256, seed=i, k=k)[0] for k in (1, 2, 3, 5)) for i in range(8)) / 8
    assert always < 0.9
    assert ratio < always * 1.08


def test_sure_drafts_are_long_and_doubtful_ones_short() -> None:
    controller = DraftController(12)
    for confidence, wanted in ((0.95, {12}), (0.4, {1, 2}), (0.05, {0})):
        request = FakeRequest(int(100 * confidence), [0] * 12, confidences=[confidence] * 12)
        controller.observe_forward(1, 1, PLAIN, 0.0)
        for _ in range(200):  # a budget
            controller.observe(request, 0, 0)
        controller.trim([request])
        assert len(request.drafts) in wanted


def test_drafting_comes_back_when_it_pays_again() -> None:
    world = World(lambda p: 0.0 if 100 <= p < 300 else 0.95, flat)
    ratio, verified = world.run(DraftController(5), 0, 900)
    assert verified.count(0) > 30
    assert ratio < 0.5
    assert sum(verified[-40:]) > 160


def test_fewer_drafts_when_drafting_is_dear() -> None:
    nominal = NominalCosts(draft_per_token=0.3)
    world = World(lambda _: 0.6, flat, lambda k: 0.3 * PLAIN * k)
    _, verified = world.run(DraftController(8, nominal=nominal), 0, 600)
    late = [k for k in verified[100:] if k]
    assert 1 <= sum(late) / len(late) < 4


def test_a_text_that_copies_is_drafted_after_texts_that_do_not() -> None:
    controller = DraftController(8)
    for i in range(6):
        World(lambda _: 0.0, flat).run(controller, i, 128, seed=i)
    ratio, _ = World(lambda _: 0.95, flat).run(controller, 6, 128, seed=6)
    assert ratio < 0.5


def test_a_disturbed_step_does_not_switch_drafting_off() -> None:
    controller, request = DraftController(4), FakeRequest(0)
    for _ in range(3):
        controller.observe_forward(1, 1, PLAIN, 0.0)
    for i in range(60):
        request.drafts = [0] * 4
        controller.trim([request])
        assert len(request.drafts) > 0
        drafted = len(request.drafts)
        controller.observe(request, drafted, drafted)
        controller.observe_forward(1, 1 + drafted, flat(1 + drafted) * (40 if i == 30 else 1), 0.0)


def test_plain_steps_are_timed_again_now_and_then() -> None:
    _, verified = World(lambda _: 0.97, flat).run(DraftController(4), 0, 3000)
    assert 2 <= verified.count(0) <= 20


def test_reproducible_requests_do_not_look_at_the_clock_or_at_others() -> None:
    runs = []
    for slowness in (1.0, 7.0):
        controller = DraftController(5, is_reproducible=lambda request: True)
        World(lambda _: 0.2, steep).run(controller, 0, int(100 * slowness), seed=9)  # another request before it
        world = World(lambda p: 0.9 if p % 100 < 50 else 0.0, lambda rows: slowness * flat(rows))  # noqa: B023
        runs.append(world.run(controller, 1, 400, seed=3)[1])
    assert runs[0] == runs[1]
    assert {0, 5} <= set(runs[0])


def test_reproducible_requests_do_not_depend_on_their_batch() -> None:
    lengths = []
    for others in (0, 7):
        controller = DraftController(6, is_reproducible=lambda request: request.index == 0)
        for _ in range(4):
            controller.observe_forward(1 + others, 1 + others, PLAIN, 0.0)
        mine = FakeRequest(0, [0] * 6, confidences=[0.9] * 6)
        rest = [FakeRequest(1 + i, [0] * 6, confidences=[0.99] * 6) for i in range(others)]
        controller.trim([*rest, mine])
        lengths.append(len(mine.drafts))
    assert lengths[0] == lengths[1] > 0


def test_drafts_without_an_opinion_are_judged_by_their_position() -> None:
    controller, request = DraftController(4), FakeRequest(0)
    for _ in range(40):
        request.drafts, request.confidences = [0] * 4, [float("nan")] * 4
        controller.trim([request])
        drafted = len(request.drafts)
        controller.observe(request, drafted, drafted)
        controller.observe_forward(1, 1 + drafted, flat(1 + drafted), 0.0)
    request.drafts, request.confidences = [0] * 4, [float("nan")] * 4
    controller.trim([request])
    assert len(request.drafts) == 4


def test_free_drafts_of_a_chain_go_on_where_dear_ones_do_not_pay() -> None:
    """Each kind is judged by itself: the dear drafter is always wrong, the free one, which drafts now and then, right."""
    controller = DraftController(4, nominal=NominalCosts(draft_per_token=0.2))
    request, asked, kept = FakeRequest(0), [], []
    for turn in range(300):
        wanted = controller.choose(request)
        request.drafts_free = turn % 3 == 0
        request.drafts = [0] * (4 if request.drafts_free else wanted)
        request.confidences = [0.8] * 4 if request.drafts_free else None
        controller.trim([request])
        drafted, right = len(request.drafts), request.drafts_free
        controller.observe(request, drafted, drafted if right else 0)
        # a round of the dear drafter takes a while, one of the free one nothing
        took = 0.2 * PLAIN * wanted if wanted and not right else 0.0
        controller.observe_forward(1, 1 + drafted, steep(1 + drafted), took)
        asked.append(wanted)
        if right:
            kept.append(drafted)
    assert sum(count > 0 for count in asked[100:]) < 10
    assert sum(kept[30:]) / len(kept[30:]) > 2.5
    assert controller.measured.draft(1, 2) == pytest.approx(0.4, rel=0.1)


def test_drafts_that_first_read_a_prompt_do_not_say_what_drafts_cost():
    controller = DraftController(5, nominal=NominalCosts(draft_per_token=0.1))
    for _ in range(3):
        controller.observe_forward(1, 1, PLAIN, 0.0)
    for index, draft_seconds in ((1, 20 * PLAIN), (2, 30 * PLAIN)):  # the first rounds of two requests
        request = FakeRequest(index)
        assert controller.choose(request) > 0
        request.drafts = [0]
        controller.trim([request])
        controller.observe(request, 1, 1)
        controller.observe_forward(1, 2, PLAIN, draft_seconds)
    request.drafts = [0] * controller.choose(request)
    assert request.drafts, "the cost of reading prompts was taken for that of drafts"
    controller.trim([request])
    controller.observe(request, len(request.drafts), 0)
    controller.observe_forward(1, 2, PLAIN, 30 * PLAIN)  # now it was the drafts
    assert controller.choose(request) == 0
