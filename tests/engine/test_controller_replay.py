"""The draft controller on recorded texts: prompt lookup replayed with what the target said, alone and in batches.

The traces are the ten packaged benchmark prompts and what SmolLM2-135M-Instruct answered, greedily and at T = 0.8.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, median

import pytest

from specdec.engine.policy.controller import DraftController
from specdec.speculators.ngram_index import NgramIndex, continuation

TRACES = Path(__file__).parents[1] / "fixtures" / "token_traces.jsonl"
K = 12


@dataclass(frozen=True)
class Lookup:
    """What prompt lookup drafts before each output token of a text."""

    name: str
    temperature: float
    confidences: tuple[tuple[float, ...], ...]  # per output position
    accepted: tuple[int, ...]


@dataclass
class Replay:
    index: int
    lookup: Lookup
    length: int
    at: int = 1  # the first token comes from the prompt's forward
    drafts: list[int] = field(default_factory=list)
    draft_logits: object = None
    confidences: list[float] | None = None
    drafts_free: bool = False

    def draw(self, wanted: int) -> None:
        self.confidences = list(self.lookup.confidences[self.at][: max(0, min(wanted, self.length - self.at - 1))])
        self.drafts = [0] * len(self.confidences)

    def advance(self) -> int:
        accepted = min(len(self.drafts), self.lookup.accepted[self.at])
        self.at += accepted + 1
        return accepted


@cache
def lookups() -> list[Lookup]:
    found = []
    for line in TRACES.read_text().splitlines():
        trace = json.loads(line)
        index, output = NgramIndex(2, 4, leftmost=False), trace["output"]
        index.extend(trace["prompt"])
        confidences, accepted = [], []
        for at, token in enumerate(output):
            start = index.match()
            drafts = [] if start is None else continuation(index.tokens, start, K, wrap=True)
            right = 0
            while right < min(len(drafts), len(output) - at) and drafts[right] == output[at + right]:
                right += 1
            confidences.append(tuple(index.confidences(start, drafts)) if start is not None else ())
            accepted.append(right)
            index.extend([token])
        found.append(Lookup(trace["id"], trace["temperature"], tuple(confidences), tuple(accepted)))
    return found


def seconds(rows: int) -> float:
    """A processor that is full from the first row on."""
    return 0.0095 + 0.00135 * (rows - 1)


def decode(controller: DraftController | None, batch: list[Replay], rng: random.Random) -> float:
    """Seconds until all requests of a batch are done."""
    total = 0.0
    running = list(batch)
    while running:
        for request in running:
            request.draw(controller.choose(request, len(running)) if controller else 0)
        if controller:
            controller.trim(running)
        size, rows = len(running), len(running) + sum(len(request.drafts) for request in running)
        total += seconds(rows)
        for request in running:
            drafted, accepted = len(request.drafts), request.advance()
            if controller:
                controller.observe(request, drafted, accepted)
        if controller:
            seen = rng.gauss(1, 0.04) * (rng.uniform(1.5, 4) if rng.random() < 0.02 else 1)
            controller.observe_forward(size, rows, seconds(rows) * seen, 0.0)
        running = [request for request in running if request.at < request.length]
    if controller:
        for request in batch:
            controller.finish(request)
    return total


def speed_ups(temperature: float, length: int, seed: int) -> dict[str, float]:
    """Speed over plain decoding of each text, one after the other."""
    rng = random.Random(seed)
    controller = DraftController(K, is_reproducible=lambda request: request.lookup.temperature > 0)
    texts = [lookup for lookup in lookups() if lookup.temperature == temperature]
    rng.shuffle(texts)
    speeds = {}
    for i, lookup in enumerate(texts):
        plain = seconds(1) * (length - 1)
        speeds[lookup.name] = plain / decode(controller, [Replay(i, lookup, length)], rng)
    return speeds


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("length", [48, 64, 96, 128])
def test_no_text_is_slower_than_plain_decoding_by_more_than_3_percent(temperature: float, length: int) -> None:
    for seed in range(3):
        speeds = speed_ups(temperature, length, seed)
        assert len(speeds) == 10
        assert min(speeds.values()) > 0.97, speeds


def test_texts_that_copy_gain_most_of_what_there_is() -> None:
    for seed in range(3):
        speeds = speed_ups(0.0, 64, seed)
        assert speeds["translate_copy-1"] > 3.5
        assert speeds["summarise-1"] > 3.5
        assert speeds["code_edit-1"] > 1.9
        assert median(speeds.values()) > 1.3
    assert median(speed_ups(0.8, 64, 0).values()) > 1.15


def batches(size: int, seed: int, keep: tuple[str, ...] | None = None) -> list[Lookup]:
    texts = [x for x in lookups() if x.temperature == 0.0 and (keep is None or x.name in keep)]
    return random.Random(seed).choices(texts, k=size)


@pytest.mark.parametrize("size", [2, 4, 8, 32])
def test_a_batch_is_not_slowed_down(size: int) -> None:
    """No request is slowed down for the sake of another one, so the last one is done as early as without drafts."""
    for seed in range(4):
        texts = batches(size, seed)
        plain = decode(None, [Replay(i, text, 64) for i, text in enumerate(texts)], random.Random(seed))
        controller = DraftController(K)
        for turn in range(2):
            replays = [Replay(100 * turn + i, text, 64) for i, text in enumerate(texts)]
            assert decode(controller, replays, random.Random(seed)) < 1.03 * plain


def test_a_small_batch_of_copies_gains() -> None:
    gains = []
    for seed in range(4):
        texts = batches(2, seed, ("translate_copy-1",))
        plain = decode(None, [Replay(i, text, 64) for i, text in enumerate(texts)], random.Random(seed))
        gains.append(
            plain / decode(DraftController(K), [Replay(i, t, 64) for i, t in enumerate(texts)], random.Random(1))
        )
    assert fmean(gains) > 2.0


@pytest.mark.parametrize(("size", "least"), [(2, 1.03), (4, 1.0), (8, 1.0), (32, 0.97)])
def test_while_requests_wait_the_tokens_of_the_batch_count(size: int, least: float) -> None:
    def rate(controller: DraftController | None) -> float:
        rng, tokens, total, count = random.Random(size), 0, 0.0, size
        running = [Replay(i, text, 128, at=1 + rng.randrange(100)) for i, text in enumerate(batches(size, 3))]
        while tokens < 300 * size:
            for request in running:
                request.draw(controller.choose(request, size) if controller else 0)
            if controller:
                controller.crowded = True
                controller.trim(running)
            rows = size + sum(len(request.drafts) for request in running)
            total += seconds(rows)
            for i, request in enumerate(running):
                drafted, accepted = len(request.drafts), request.advance()
                tokens += accepted + 1
                if controller:
                    controller.observe(request, drafted, accepted)
                if request.at >= request.length:
                    running[i] = Replay(count, batches(1, count)[0], 128)
                    count += 1
            if controller:
                controller.observe_forward(size, rows, seconds(rows) * rng.gauss(1, 0.04), 0.0)
        return tokens / total

    assert rate(DraftController(K)) > least * rate(None)
