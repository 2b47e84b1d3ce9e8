"""Suffix statistics against a dictionary of all substrings, and suffix drafting in the round driver."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from specdec.speculators.suffix import SuffixSpeculator
from specdec.speculators.suffix_tree import SuffixTree

CPU = torch.device("cpu")


def substrings(sequences: list[list[int]], depth: int) -> Counter:
    return Counter(tuple(s[i : i + n]) for s in sequences for n in range(1, depth + 1) for i in range(len(s) - n + 1))


def check_counts(tree: SuffixTree, sequences: list[list[int]], depth: int, vocab: int) -> None:
    want = substrings(sequences, depth)
    for key, count in want.items():
        assert tree.count(key) == count, key
        for token in range(vocab):
            longer = (*key, token)
            if len(longer) <= depth:
                assert tree.count(longer) == want[longer]


@pytest.mark.parametrize("depth", [1, 2, 4, 7])
@pytest.mark.parametrize("vocab", [1, 2, 4])
def test_counts_equal_all_substrings_while_sequences_grow_together(depth: int, vocab: int) -> None:
    rng = random.Random(f"{depth} {vocab}")
    tree, sequences = SuffixTree(depth), [[], [], []]
    for _ in range(25):
        i = rng.randrange(3)
        new = [rng.randrange(vocab) for _ in range(rng.randrange(1, 4))]
        tree.extend(i, new)
        sequences[i] += new
        check_counts(tree, sequences, depth, vocab)


def test_removal_leaves_the_others_and_no_trace() -> None:
    rng = random.Random(4)
    tree, sequences = SuffixTree(5), [[rng.randrange(3) for _ in range(30)] for _ in range(5)]
    for i, tokens in enumerate(sequences):
        tree.extend(i, tokens)
    for gone in (2, 0, 4):
        tree.remove(gone)
        left = [s for i, s in enumerate(sequences) if i in {2: (0, 1, 3, 4), 0: (1, 3, 4), 4: (1, 3)}[gone]]
        check_counts(tree, left, 5, 3)
    tree.extend(1, [0, 1, 2])
    check_counts(tree, [sequences[1] + [0, 1, 2], sequences[3]], 5, 3)
    tree.remove(1)
    tree.remove(3)
    assert tree.root.children == {} and len(tree) == 0


def oracle(text, depth, max_tokens, factor, min_probability):
    """The best draft after ``text`` by a dictionary of all substrings; among equal children the first to get there."""
    counts, best = Counter(), {}
    for end in range(1, len(text) + 1):
        for n in range(1, min(depth, end) + 1):
            *prefix, token = key = tuple(text[end - n : end])
            counts[key] += 1
            leader = best.setdefault(tuple(prefix), token)
            if counts[key] > counts[(*prefix, leader)]:
                best[tuple(prefix)] = token
    winner, winning = ([], []), 0.0
    context = text[-depth:]
    for m in range(1, len(context)):
        place, draft, probabilities, path, score = tuple(context[-m:]), [], [], 1.0, 0.0
        while len(draft) < min(max_tokens, int(m * factor + 1e-6), depth - m) and place in best:
            token = best[place]
            path *= counts[(*place, token)] / counts[place]
            if path < min_probability:
                break
            draft.append(token)
            probabilities.append(counts[(*place, token)] / counts[place])
            place, score = (*place, token), score + path
        if score >= winning:
            winner, winning = (draft, probabilities), score
    return winner


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("min_probability", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("depth", [3, 6, 12])
def test_speculation_equals_the_oracle(factor: float, min_probability: float, depth: int) -> None:
    rng = random.Random(f"{factor} {min_probability} {depth}")
    drafted = 0
    for _ in range(20):
        base = [rng.randrange(5) for _ in range(6)]
        text = [t if rng.random() < 0.9 else rng.randrange(5) for t in base * 4]
        tree = SuffixTree(depth)
        for i, token in enumerate(text):
            tree.extend(0, [token])
            got = tree.speculate(text[: i + 1][-depth:], 4, spec_factor=factor, min_probability=min_probability)
            assert (got.tokens, got.probabilities) == oracle(text[: i + 1], depth, 4, factor, min_probability)
            quick = tree.speculate(
                text[: i + 1][-depth:], 4, spec_factor=factor, min_probability=min_probability, sequence=0
            )
            assert (quick.tokens, quick.probabilities) == (got.tokens, got.probabilities)
            drafted += len(got.tokens)
    # the text's own end is an occurrence without a continuation, so nothing in it is certain
    assert (drafted > 0) == (min_probability < 1)


def test_a_certain_continuation_only() -> None:
    tree = SuffixTree(8)
    tree.extend(0, [1, 2, 3, 9, 1, 2, 4, 9, 1, 2])
    tree.close(0)
    # after [9, 1, 2] comes 4 once, and once nothing yet
    unsure = tree.speculate([0, 9, 1, 2], 4, spec_factor=4.0, min_probability=0.3)
    assert (unsure.tokens, unsure.probabilities) == ([4, 9, 1, 2], [0.5, 1.0, 1.0, 1.0])
    assert tree.speculate([0, 9, 1, 2], 4, spec_factor=4.0, min_probability=1.0).tokens == []
    assert tree.speculate([5, 3], 4, spec_factor=4.0, min_probability=1.0).tokens == [9, 1, 2, 4]


def test_the_depth_bounds_match_and_draft_together() -> None:
    tree = SuffixTree(4)
    tree.extend(0, list(range(20)))
    assert tree.speculate([0, 7], 10, spec_factor=9.0, min_probability=0.0).tokens == [8, 9, 10]
    assert tree.speculate([0, 6, 7], 10, spec_factor=9.0, min_probability=0.0).match_len == 1


def options(**changes) -> dict:
    return {
        "suffix_decoding_max_tree_depth": 16,
        "suffix_decoding_max_cached_requests": 100,
        "suffix_decoding_max_spec_factor": 2.0,
        "suffix_decoding_min_token_prob": 0.1,
    } | changes


def scripted(answer: list[int], prompt_len: int):
    return lambda prefix: answer[(len(prefix) - prompt_len) % len(answer)]


def test_an_answer_seen_before_is_drafted_and_evicted(make_config, run_greedy) -> None:
    answer = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]
    rounds = {}
    for capacity in (0, 1, 5):
        speculator = SuffixSpeculator(make_config(4, options(suffix_decoding_max_cached_requests=capacity)), CPU)
        rounds[capacity] = []
        for prompt in ([1, 2], [3, 4, 5]):
            (request,) = run_greedy(speculator, scripted(answer, len(prompt)), [prompt], max_tokens=12)
            assert request.output == answer
            rounds[capacity].append(len(request.rounds))
        (other,) = run_greedy(speculator, scripted([30 + i for i in range(12)], 1), [[6]], max_tokens=12)
        assert len(other.rounds) == 12
        (again,) = run_greedy(speculator, scripted(answer, 1), [[7]], max_tokens=12)
        rounds[capacity].append(len(again.rounds))
        assert len(speculator._global) == min(capacity, 4)
    assert rounds[0] == [12, 12, 12]
    # with room for one answer, the one being written has replaced the earlier one
    assert rounds[1] == [12, 12, 12]
    assert rounds[5][0] == 12 and rounds[5][1] < 8 and rounds[5][2] < 8


def test_prompts_stay_out_of_the_global_structure(make_config, run_greedy) -> None:
    speculator = SuffixSpeculator(make_config(3, options()), CPU)
    run_greedy(speculator, lambda prefix: 50, [[1, 2, 3, 4]], max_tokens=2)
    assert speculator._global.count([1]) == 0
    assert speculator._global.count([50]) == 2


def test_confidences_are_observed_frequencies_and_pad_with_zero(tell, make_config, make_batch, make_request) -> None:
    speculator = SuffixSpeculator(make_config(4, options()), CPU)
    speculator.start(0, torch.tensor([1, 2, 3, 1, 2]))
    drafts = tell(speculator, make_batch([make_request(0, [], 9, 4, 5)], [[1, 2, 3, 1, 2]], [0], [3]))
    ids, confidences = drafts.token_ids[0], drafts.confidences[0]
    assert ids[0] == 1 and bool((confidences[ids < 0] == 0).all())
    assert confidences[0] == pytest.approx(0.5)  # [1, 2, 3] was followed by 1 once, and once by nothing yet
    assert drafts.logits is None


@pytest.mark.parametrize("chunk", [None, 2])
def test_greedy_output_and_batch_independence(make_config, run_greedy, chunk: int | None) -> None:
    def next_token(prefix: list[int]) -> int:
        return hash((tuple(prefix[-2:]), len(prefix) // 11)) % 4

    prompts = [[1, 2, 3] * 4, [0], [3, 3, 1, 0, 2]]
    private = options(suffix_decoding_max_cached_requests=0)
    together = run_greedy(
        SuffixSpeculator(make_config(4, private), CPU),
        next_token,
        prompts,
        max_tokens=[40, 9, 25],
        k=[4, 4, 2],
        chunk=chunk,
    )
    for i, prompt in enumerate(prompts):
        plain = list(prompt)
        for _ in range([40, 9, 25][i]):
            plain.append(next_token(plain))
        assert together[i].tokens == plain
        alone = run_greedy(
            SuffixSpeculator(make_config(4, private), CPU),
            next_token,
            [prompt],
            max_tokens=[40, 9, 25][i],
            k=[4, 4, 2][i],
            slots=[7],
        )
        assert alone[0].rounds == together[i].rounds
    assert any(accepted for request in together for _, accepted in request.rounds)
