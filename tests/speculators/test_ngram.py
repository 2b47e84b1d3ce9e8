"""Prompt lookup against brute force for both tie rules, against transformers, and inside the round driver."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from specdec.speculators.ngram import NgramSpeculator, lookup_window
from specdec.speculators.ngram_index import NgramIndex, continuation

CPU = torch.device("cpu")


def brute_force(tokens: list[int], low: int, high: int, k: int, leftmost: bool) -> list[int]:
    """Longest n first; among the earlier occurrences of the last n tokens the first or the latest."""
    for n in range(min(high, len(tokens) - 1), low - 1, -1):
        starts = [i for i in range(len(tokens) - n) if tokens[i : i + n] == tokens[-n:]]
        if starts:
            at = (starts[0] if leftmost else starts[-1]) + n
            draft = tokens[at : at + k]
            while not leftmost and len(draft) < k:
                draft.append((tokens + draft)[at + len(draft)])
            return draft
    return []


@pytest.mark.parametrize("match", ["leftmost", "rightmost"])
@pytest.mark.parametrize("window", [(1, 1), (1, 3), (2, 5), (3, 3)])
def test_every_prefix_equals_brute_force(match: str, window: tuple[int, int]) -> None:
    rng = random.Random(repr(window))
    for vocab, length in ((2, 40), (3, 60), (30, 60)):
        tokens = [rng.randrange(vocab) for _ in range(length)]
        index = NgramIndex(*window, leftmost=match == "leftmost")
        for i, token in enumerate(tokens):
            index.extend([token])
            start = index.match()
            wrap = match == "rightmost"
            got = [] if start is None else continuation(index.tokens, start, 4, wrap=wrap)
            assert got == brute_force(tokens[: i + 1], *window, 4, match == "leftmost")


def test_the_tie_rules_differ() -> None:
    tokens = [7, 1, 8, 7, 2, 9, 7]
    drafts = {}
    for match in ("leftmost", "rightmost"):
        index = NgramIndex(1, 2, leftmost=match == "leftmost")
        index.extend(tokens)
        drafts[match] = continuation(tokens, index.match(), 2, wrap=match == "rightmost")
    assert drafts == {"leftmost": [1, 8], "rightmost": [2, 9]}


def test_overlap_and_short_histories() -> None:
    index = NgramIndex(1, 3, leftmost=False)
    assert index.match() is None
    index.extend([5])
    assert index.match() is None
    index.extend([5, 5, 5])
    assert continuation(index.tokens, index.match(), 4, wrap=True) == [5, 5, 5, 5]
    assert continuation([1, 2, 3, 1, 2, 3], 3, 7, wrap=True) == [1, 2, 3, 1, 2, 3, 1]
    assert continuation([1, 2, 3, 1, 2, 3], 3, 7, wrap=False) == [1, 2, 3]


@pytest.mark.parametrize("max_n", [1, 2, 3, 5])
def test_leftmost_equals_transformers(tell, max_n: int, make_config, make_batch, make_request) -> None:
    rng = random.Random(max_n)
    theirs = PromptLookupCandidateGenerator(
        num_output_tokens=4, max_matching_ngram_size=max_n, max_length=1000, vocab_size=50
    )
    options = {"prompt_lookup_min": 1, "prompt_lookup_max": max_n, "prompt_lookup_match": "leftmost"}
    for _ in range(60):
        tokens = [rng.randrange(rng.choice([2, 4, 8])) for _ in range(rng.randrange(3, 40))]
        ours = NgramSpeculator(make_config(4, options), CPU)
        ours.start(0, torch.tensor(tokens[:-1]))
        request = make_request(0, tokens[:-1], 10, 4, len(tokens) - 1)
        drafts = tell(ours, make_batch([request], [tokens[:-1]], [0], [tokens[-1]])).token_ids[0]
        candidates, _ = theirs.get_candidates(torch.tensor([tokens]))
        assert drafts[drafts >= 0].tolist() == candidates[0, len(tokens) :].tolist()


def test_the_maximum_is_read(make_config, run_greedy) -> None:
    tokens = [4, 2, 3, 7, 8, 1, 2, 3, 9, 5, 6, 2, 3, 7, 8, 1, 2]
    drafts = {}
    for high in (2, 3):
        speculator = NgramSpeculator(make_config(2, {"prompt_lookup_min": 1, "prompt_lookup_max": high}), CPU)
        (request,) = run_greedy(speculator, lambda prefix: 3, [tokens], max_tokens=4)
        drafts[high] = request.rounds[1][0]
    assert drafts == {2: [7, 8], 3: [9, 5]}


def test_window_defaults(make_config) -> None:
    assert lookup_window(make_config(1)) == (5, 5)
    assert lookup_window(make_config(1, {"prompt_lookup_max": 4})) == (4, 4)
    assert lookup_window(make_config(1, {"prompt_lookup_min": 2, "prompt_lookup_max": None})) == (2, 2)
    with pytest.raises(ValueError, match="prompt_lookup_min is 5; allowed: at most prompt_lookup_max"):
        lookup_window(make_config(1, {"prompt_lookup_min": 5, "prompt_lookup_max": 4}))


def cycle(prefix: list[int]) -> int:
    return (3 * prefix[-1] + 1) % 7


def test_periodic_text_is_accepted_in_full(make_config, run_greedy) -> None:
    speculator = NgramSpeculator(make_config(4, {"prompt_lookup_min": 1, "prompt_lookup_max": 3}), CPU)
    (request,) = run_greedy(speculator, cycle, [[1]], max_tokens=60)
    drafted = [(d, a) for d, a in request.rounds if d]
    assert all(len(d) == a for d, a in drafted)
    assert len(request.rounds) < 24
    assert request.output == [cycle([1])] + [cycle([t]) for t in request.output[:-1]]


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_a_batch_of_unequal_requests_equals_them_alone(make_config, run_greedy, chunk: int | None) -> None:
    def hard(prefix: list[int]) -> int:
        return hash((tuple(prefix[-3:]), len(prefix) // 9)) % 5

    prompts = [[1, 2, 3] * 4, [4], [0, 1] * 9, [2, 2, 2, 2]]
    settings = {"max_tokens": [30, 12, 25, 40], "k": [3, 0, 2, 3]}
    speculator = NgramSpeculator(make_config(3, {"prompt_lookup_min": 1, "prompt_lookup_max": 4}), CPU)
    together = run_greedy(speculator, hard, prompts, chunk=chunk, **settings)
    for i, prompt in enumerate(prompts):
        alone = NgramSpeculator(make_config(3, {"prompt_lookup_min": 1, "prompt_lookup_max": 4}), CPU)
        one = {name: values[i] for name, values in settings.items()}
        (request,) = run_greedy(alone, hard, [prompt], chunk=chunk, slots=[5], **one)
        assert request.output == together[i].output
        assert request.rounds == together[i].rounds
    assert not any(d for d, _ in together[1].rounds)
    assert speculator._indexes == {}


@pytest.mark.parametrize("match", ["leftmost", "rightmost"])
def test_the_search_on_the_device_equals_the_index(match: str, make_config, make_batch, make_request) -> None:
    rng = random.Random(match)
    options = {"prompt_lookup_min": 1, "prompt_lookup_max": 3, "prompt_lookup_match": match}
    states = SimpleNamespace(
        token_ids=torch.zeros(6, 64, dtype=torch.int64), num_tokens=torch.zeros(6, dtype=torch.int64)
    )
    by_index = NgramSpeculator(make_config(4, options), CPU)
    by_search = NgramSpeculator(make_config(4, options), CPU, req_states=states)
    by_search.searches_on_device = True
    for _ in range(20):
        slots = rng.sample(range(6), 3)
        texts = [[rng.randrange(4) for _ in range(rng.randrange(2, 60))] for _ in slots]
        running, sampled = [], []
        for slot, text in zip(slots, texts, strict=True):
            states.token_ids[slot] = torch.tensor(text + [0] * (64 - len(text)))
            states.num_tokens[slot] = len(text)
            by_index.start(slot, torch.tensor(text[:-1]))
            by_search.start(slot, torch.tensor(text[:-1]))
            running.append(make_request(slot, text[:-1], 9, rng.randrange(5), len(text) - 1))
            sampled.append(rng.choice([text[-1], text[-1], -1]))
        batch = make_batch(running, [text[:-1] for text in texts], [0, 0, 0], sampled)
        by_index.observe(batch)
        by_search.observe(batch)
        asked = [i for i, r in enumerate(running) if r.k and sampled[i] >= 0]
        if asked:
            step = batch.only(asked, [running[i].k for i in asked])
            assert torch.equal(by_index.propose(step).token_ids, by_search.propose(step).token_ids)
        for slot in slots:
            by_index.finish(slot)
            by_search.finish(slot)


def test_confidences_grow_with_the_match_and_fall_where_occurrences_disagree() -> None:
    def first(tokens: list[int], count: int = 1) -> list[float]:
        index = NgramIndex(2, 3, leftmost=False)
        index.extend(tokens)
        start = index.match()
        assert start is not None
        return index.confidences(start, continuation(tokens, start, count, wrap=True))

    short, long = first([1, 2, 3, 4, 9, 1, 2]), first([7, 8, 1, 2, 3, 4, 9, 7, 8, 1, 2], 3)
    assert 0 < short[0] < long[0] < long[1] < long[2] < 1  # each draft lengthens the match
    assert long[0] == pytest.approx(2.2 / 3.2)  # four tokens
    agreed = first([1, 2, 3, 0, 1, 2, 3, 5, 1, 2, 3, 6, 1, 2])
    changed = first([1, 2, 4, 0, 1, 2, 3, 6, 1, 2])
    assert changed[0] < 0.2 < short[0] < agreed[0] and agreed[0] > 0.8


def test_a_copy_of_the_longer_match_that_a_later_text_contradicts_is_doubted() -> None:
    tokens = [5, 1, 2, 3, 4, 6, 2, 3, 9, 5, 1]  # after 1, 2, 3 comes 4, but the latest 2, 3 was followed by 9
    index = NgramIndex(2, 2, leftmost=False)
    index.extend(tokens)
    start = index.match()
    drafts = continuation(tokens, start, 3, wrap=True)
    assert drafts == [2, 3, 4]
    two, three, four = index.confidences(start, drafts)
    assert three > two > four
