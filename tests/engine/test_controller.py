"""The draft controller on simulated requests: bounded loss, most of the gain, recovery, and reproducible choices."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from specdec.engine.controller import DraftController
from specdec.engine.step_costs import VERIFY_PER_TOKEN, MeasuredCosts, NominalCosts

PLAIN = 0.030  # seconds


@dataclass
class FakeRequest:
    index: int


@dataclass
class World:
    """A drafter and a target: acceptance by output position, and what steps cost."""

    acceptance: Callable[[int], float]
    draft_seconds: Callable[[int], float]
    verify_seconds: Callable[[int], float]
    match: float = 1.0  # chance that the drafter drafts at all
    noise: float = 0.05

    def run(self, controller, index: int, tokens: int, seed: int = 0, plain: float = PLAIN) -> tuple[float, list[int]]:
        """Seconds for ``tokens`` tokens over those of plain decoding, and the choices."""
        rng = random.Random(seed)
        request, emitted, seconds, choices = FakeRequest(index), 1, 0.0, []
        while emitted < tokens:
            k = controller.choose(request) if controller else 5
            choices.append(k)
            drafted = k if k and rng.random() < self.match else 0
            accepted = 0
            while accepted < drafted and rng.random() < self.acceptance(emitted):
                accepted += 1
            draft = (self.draft_seconds(k) if k else 0.0) * rng.uniform(1 - self.noise, 1 + self.noise)
            verify = self.verify_seconds(drafted + 1) * rng.uniform(1 - self.noise, 1 + self.noise)
            if controller:
                controller.observe(request, drafted, accepted, draft, verify, drafted + 1)
            seconds += draft + verify
            emitted += accepted + 1
        if controller:
            controller.finish(request)
        return seconds / ((tokens - 1) * plain), choices


def flat(width: int) -> float:
    return PLAIN * (1 + 0.02 * (width - 1))


def steep(width: int) -> float:
    return PLAIN * (1 + 0.2 * (width - 1))


LOOKUP: Callable[[int], float] = lambda k: 0.0001  # noqa: E731
MODEL: Callable[[int], float] = lambda k: 0.012 * k  # noqa: E731
DRAFTERS = {"lookup": (LOOKUP, flat, 0.5), "lookup, steep": (LOOKUP, steep, 0.5), "model": (MODEL, flat, 1.0)}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("tokens", [64, 128, 512])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_a_bad_drafter_costs_at_most_the_budget(name: str, tokens: int, rate: float) -> None:
    draft, verify, match = DRAFTERS[name]
    controller = DraftController(5)
    ratios = [World(lambda _: rate, draft, verify, match).run(controller, i, tokens, seed=i)[0] for i in range(12)]
    # a step or two of a short first request, 3 % of everything else
    assert sum(ratios) / len(ratios) < 1.03
    assert max(ratios[1:]) < 1.03 + 1.5 / tokens


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_good_drafter_keeps_its_gain(name: str) -> None:
    draft, verify, match = DRAFTERS[name]
    world = World(lambda _: 0.9, draft, verify, match)
    controller = DraftController(5)
    ratio = sum(world.run(controller, i, 256, seed=i)[0] for i in range(8)) / 8
    always = sum(world.run(None, i, 256, seed=i)[0] for i in range(8)) / 8
    assert always < 0.75
    assert ratio < always * 1.08  # the first request measures plain steps and starts within its budget


def test_drafting_comes_back_when_it_pays_again() -> None:
    def changing(position: int) -> float:
        return 0.0 if 100 <= position < 300 else 0.95

    world = World(changing, LOOKUP, flat)
    ratio, choices = world.run(DraftController(5), 0, 900)
    off = choices.count(0)
    assert off > 80
    assert ratio < 0.45
    assert all(k > 0 for k in choices[-40:])


def test_fewer_drafts_when_drafting_is_dear() -> None:
    world = World(lambda _: 0.6, lambda k: 0.009 * k, flat)
    _, choices = world.run(DraftController(8), 0, 600)
    late = [k for k in choices[100:] if k]
    assert 1 <= sum(late) / len(late) < 4


def test_plain_steps_are_measured_first_and_again() -> None:
    controller = DraftController(4)
    _, choices = World(lambda _: 0.95, LOOKUP, flat).run(controller, 0, 3000)
    assert choices[:2] == [0, 0]
    assert 2 <= choices.count(0) <= 10


def test_a_disturbed_step_does_not_switch_drafting_off() -> None:
    controller, request = DraftController(4), FakeRequest(0)
    for _ in range(3):
        controller.observe(request, 0, 0, 0.0, PLAIN, 1)
    for i in range(60):
        assert controller.choose(request) > 0
        controller.observe(request, 4, 3, 0.0001, flat(5) * (40 if i == 30 else 1), 5)


def test_reproducible_requests_do_not_look_at_the_clock() -> None:
    runs = []
    for slowness in (1.0, 7.0):
        controller = DraftController(5, is_reproducible=lambda request: True)
        World(lambda _: 0.2, MODEL, steep).run(controller, 0, 100, seed=9)  # another request before it
        verify = {w: slowness * flat(w) for w in range(1, 7)}
        world = World(lambda p: 0.9 if p % 100 < 50 else 0.0, MODEL, verify.__getitem__)
        runs.append(world.run(controller, 1, 400, seed=3)[1])
    assert runs[0] == runs[1]
    assert {0, 5} <= set(runs[0])


def test_costs_interpolate_and_take_medians() -> None:
    costs = MeasuredCosts()
    assert costs.verify(3) is None
    assert costs.plain_is_stale(10)
    for seconds in (0.01, 0.01, 5.0):
        costs.add(1, seconds, 0, 0.0)
    costs.add(5, 0.02, 4, 0.004)
    assert costs.verify(3) == pytest.approx(1.5)
    assert costs.verify(9) == pytest.approx(2.0 + 4 * VERIFY_PER_TOKEN)  # wider than anything measured
    assert costs.draft(4) == pytest.approx(0.4)
    assert costs.draft(2) == pytest.approx(0.2)
    assert not costs.plain_is_stale(10)


def test_nominal_costs_of_a_configuration() -> None:
    def config(draft: int | None, parallel: bool = False) -> SimpleNamespace:
        values = {"resources.draft_weight_bytes": draft, "target.weight_bytes": 1000}
        return SimpleNamespace(get=values.get, capabilities={"parallel_by_construction": parallel})

    assert NominalCosts.of(config(None)).draft(5) == pytest.approx(0.1)
    assert NominalCosts.of(config(200)).draft(5) == pytest.approx(1.0)
    assert NominalCosts.of(config(200, parallel=True)).draft(5) == pytest.approx(0.2)
    assert NominalCosts.of(config(200, parallel=True)).draft(0) == 0.0


def test_a_disturbed_timing_does_not_stop_drafting_for_good() -> None:
    costs = MeasuredCosts()
    for _ in range(9):
        costs.add(1, PLAIN, 0, 0.0)
    costs.add(9, 25 * PLAIN, 8, 0.0001)
    assert costs.verify(9) == pytest.approx(25)
    for _ in range(70):
        costs.add(1, PLAIN, 0, 0.0)
    assert costs.verify(9) == pytest.approx(1 + 8 * VERIFY_PER_TOKEN)


def test_a_text_that_copies_is_drafted_after_texts_that_do_not() -> None:
    draft, verify, match = DRAFTERS["lookup"]
    controller = DraftController(8)
    for i in range(6):
        World(lambda _: 0.0, draft, verify, match).run(controller, i, 128, seed=i)
    ratio, _ = World(lambda _: 0.95, draft, verify, 1.0).run(controller, 6, 128, seed=6)
    assert ratio < 0.5
