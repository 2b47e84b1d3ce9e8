"""What adaptive verification gains and loses against verifying every draft, on simulated servers.

Acceptance: mean accepted lengths of DSpark on Qwen3-4B by domain, seven drafts (arXiv:2607.05147, table 1). Costs: a
target's forward takes as long as reading its weights until the tensor cores are busy, then grows with the rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from specdec.engine.policy.controller import DraftController
from specdec.engine.policy.step_costs import GPU_ROW_SHARE, NominalCosts

K = 7
DOMAINS = {"math": 5.70, "code": 5.38, "chat": 3.29}  # tokens a round, the target's own included
KNEE = 128  # rows that cost as much as one


def rate_of(length: float) -> float:
    """Acceptance of every draft, given those before it, that gives this mean length."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**j for j in range(K + 1)) < length else (low, middle)
    return low


@dataclass
class Simulated:
    index: int
    rate: float
    rng: random.Random
    drafts: list[int] = field(default_factory=list)
    draft_logits: object = ()  # drawn
    confidences: list[float] | None = None
    drafts_free: bool = False
    fate: list[bool] = field(default_factory=list)

    def draw(self, wanted: int) -> None:
        """Drafts of which some are easier than others, and a head that knows it, though not exactly."""
        hardness = [self.rng.gauss(0, 1.2) for _ in range(wanted)]
        chances = [min(0.995, max(0.02, self.rate + 0.25 * (0.8 - h if h > 0.8 else 0.2 - 0.1 * h))) for h in hardness]
        self.confidences = [min(0.999, max(0.001, p + self.rng.gauss(0, 0.05))) for p in chances]
        self.fate = [self.rng.random() < p for p in chances]
        self.drafts, self.draft_logits = [0] * wanted, () if wanted else None

    def accepted(self) -> int:
        return next((i for i in range(len(self.drafts)) if not self.fate[i]), len(self.drafts))


def tokens_per_second(size: int, controller: DraftController | None, seconds, domains, rounds: int = 250) -> float:
    rng, tokens, total = random.Random(size), 0, 0.0
    running = [Simulated(i, rate_of(DOMAINS[domains[i % len(domains)]]), random.Random(i)) for i in range(size)]
    for _ in range(rounds):
        for request in running:
            request.draw(controller.choose(request, size) if controller else K)
        drafting = 0.05 * seconds(size)
        if controller:
            controller.trim(running)
        rows = size + sum(len(request.drafts) for request in running)
        took = seconds(rows)
        for request in running:
            drafted, accepted = len(request.drafts), request.accepted()
            tokens += accepted + 1
            if controller:
                controller.observe(request, drafted, accepted)
        if controller:
            controller.observe_forward(size, rows, took * rng.gauss(1, 0.03), drafting)
        total += took + drafting
    return tokens / total


def adaptive_policy() -> DraftController:
    return DraftController(K, throughput=True, nominal=NominalCosts(GPU_ROW_SHARE))


def busy(rows: int) -> float:
    return 0.010 * max(1.0, rows / KNEE)


@pytest.mark.parametrize(("size", "least"), [(32, 1.2), (64, 1.25), (128, 1.4)])
def test_a_busy_server_gains(size: int, least: float) -> None:
    domains = list(DOMAINS)
    fixed = tokens_per_second(size, None, busy, domains, 80)
    adaptive = tokens_per_second(size, adaptive_policy(), busy, domains, 80)
    assert adaptive > least * fixed


@pytest.mark.parametrize("size", [1, 4, 8])
@pytest.mark.parametrize("domains", [("math",), ("chat",), ("math", "code", "chat")])
def test_a_server_with_few_requests_loses_at_most_2_percent(size: int, domains: tuple[str, ...]) -> None:
    fixed = tokens_per_second(size, None, busy, domains)
    adaptive = tokens_per_second(size, adaptive_policy(), busy, domains)
    assert adaptive > 0.98 * fixed


def test_a_flat_curve_switches_it_off() -> None:
    controller, verified = adaptive_policy(), []
    requests = [Simulated(i, 0.7, random.Random(i)) for i in range(4)]
    for _ in range(200):
        for request in requests:
            request.draw(controller.choose(request, 4))
        controller.trim(requests)
        verified.append(sum(len(request.drafts) for request in requests))
        for request in requests:
            controller.observe(request, len(request.drafts), request.accepted())
        controller.observe_forward(4, 4 + verified[-1], 0.010, 0.0)
    assert sum(count == 4 * K for count in verified[20:]) > 0.95 * len(verified[20:])
