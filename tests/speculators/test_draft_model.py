"""The independent draft: its cache, its laws, batches, lengths and vocabularies, without an engine."""

from __future__ import annotations

import random

import pytest
import torch

from specdec.drafts.causal_lm import DraftSequence
from specdec.speculators.base import Step
from specdec.speculators.draft_model import DraftModelSpeculator
from specdec.verify.verifier import Verifier

CPU = torch.device("cpu")


@pytest.fixture
def build(make_config, tiny_llama, target_handle):
    def make(k: int, draft: int, target: int = 0, max_len: int = 256, facts=None, **options):
        model, _ = tiny_llama(target)
        _, path = tiny_llama(draft) if isinstance(draft, int) else draft
        speculator = DraftModelSpeculator(make_config(k, options, draft={"model": path, **(facts or {})}), CPU)
        speculator.load(target_handle(model, max_len))
        return speculator

    return make


PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [7], [3, 3, 50]]


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_target_as_its_own_draft_is_always_right(build, tiny_llama, greedy_of, run_greedy, k: int) -> None:
    speculator = build(k, draft=0)
    target = greedy_of(tiny_llama(0)[0])
    for request in run_greedy(speculator, target, PROMPTS, max_tokens=23):
        drafted = request.rounds[1:]
        assert all(len(d) == a for d, a in drafted)
        assert all(len(d) == k for d, _ in drafted[:-1])


def test_cache_length_before_a_round(build, tiny_llama, greedy_of, run_greedy) -> None:
    """committed - 1 after a rejection, committed - 2 after full acceptance: the last draft was never consumed."""
    k, seen = 3, set()
    target = greedy_of(tiny_llama(0)[0])

    def sometimes(prefix: list[int]) -> int:
        return target(prefix) if len(prefix) % 5 else (target(prefix) + 1) % 60

    speculator = build(k, draft=0)
    sequence_type, commit = DraftSequence, DraftSequence.commit
    lengths: list[tuple[int, int, int]] = []

    def spy(self, new):
        commit(self, new)
        lengths.append((len(new) - 1, self.num_committed, self.num_computed))

    sequence_type.commit = spy
    try:
        run_greedy(speculator, sometimes, [[1, 2, 3]], max_tokens=40)
    finally:
        sequence_type.commit = commit
    for accepted, committed, computed in lengths[1:-1]:
        assert computed == committed - (2 if accepted == k else 1)
        seen.add(accepted)
    assert {0, k} & seen and len(seen) >= 2


@pytest.mark.parametrize("chunk", [None, 2])
def test_drafts_equal_a_fresh_greedy_decode_at_every_round(build, tiny_llama, greedy_of, run_greedy, chunk) -> None:
    """Rejections at every index, unequal k and lengths in one batch: each round drafts what a fresh draft would."""
    rng = random.Random(1)
    draft = greedy_of(tiny_llama(5)[0])
    flips = {length: rng.random() < 0.3 for length in range(100)}

    def target(prefix: list[int]) -> int:
        return (draft(prefix) + flips[len(prefix)]) % 60

    def check(running) -> None:
        for request in running:
            expected = list(request.tokens)
            for token in request.drafts:
                assert token == draft(expected)
                expected.append(token)

    requests = run_greedy(
        build(4, draft=5), target, PROMPTS, max_tokens=[40, 17, 30], k=[4, 2, 3], chunk=chunk, after_step=check
    )
    accepted = {a for request in requests for _, a in request.rounds}
    assert accepted == {0, 1, 2, 3, 4}


def test_a_request_that_stops_drafting_catches_up(tell, build, tiny_llama, greedy_of, make_batch, make_request) -> None:
    speculator, draft = build(3, draft=5), greedy_of(tiny_llama(5)[0])
    tokens = [1, 2, 3, 4]
    speculator.start(0, torch.tensor(tokens))
    request = make_request(0, tokens, 99, 0, 4)
    for token in (9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3, 4, 5):
        request.k = 0 if token != 5 or len(tokens) < 10 else 3
        drafts = tell(speculator, make_batch([request], [tokens[request.computed :]], [0], [token]))
        request.computed = len(tokens)
        tokens.append(token)
        if request.k == 0:
            assert drafts.token_ids.tolist() == [[-1, -1, -1]]
            assert speculator.draft.sequences[0].num_computed == 0
    expected = list(tokens)
    for _ in range(3):
        expected.append(draft(expected))
    assert drafts.token_ids[0].tolist() == expected[-3:]


def test_lengths_beyond_the_draft_are_not_drafted(build, tiny_llama, greedy_of, run_greedy) -> None:
    short = tiny_llama(0, max_len=256)
    speculator = build(4, draft=short, facts={"max_model_len": 20})
    (request,) = run_greedy(speculator, greedy_of(tiny_llama(0)[0]), [[1, 2, 3, 4]], max_tokens=40)
    drafted = [len(d) for d, _ in request.rounds]
    assert 4 in drafted and drafted[-1] == 0
    assert all(len(d) == a for d, a in request.rounds)
    assert sum(a for _, a in request.rounds) >= 12


def probabilistic_rounds(speculator, model, verifier, seed: int, rounds: int, temperature: float = 0.9):
    """Accepted and drafted tokens of sampled decoding with full draft laws, verified on exact target rows."""
    tokens, k = [1, 2, 3], speculator.num_speculative_tokens
    speculator.start(0, torch.tensor(tokens))
    accepted = drafted = computed = 0
    drafts, laws = [], None
    for _ in range(rounds):
        consumed = tokens[computed:] + drafts
        with torch.inference_mode():
            rows = model(torch.tensor([tokens + drafts])).logits[0, len(tokens) - 1 :]
        result = verifier(
            rows,
            torch.tensor([drafts + [-1] * (k - len(drafts))]),
            temperature=[temperature],
            seeds=[seed],
            positions=[len(tokens)],
            num_drafts=[len(drafts)],
            draft_laws=laws,
        )
        count = int(result.num_sampled[0])
        emitted = result.token_ids[0, :count].tolist()
        accepted += count - 1
        drafted += len(drafts)
        batch = Step(
            next_token=torch.tensor([0]),
            finished=torch.tensor([False]),
            slots=torch.tensor([0]),
            num_drafts=torch.tensor([k]),
            token_ids=torch.tensor(consumed),
            positions=torch.arange(computed, computed + len(consumed)),
            row_offsets=torch.tensor([0, len(consumed)]),
            num_rejected=torch.tensor([len(drafts) - count + 1]),
            last_sampled=torch.tensor(emitted[-1:]),
            temperature=torch.tensor([temperature]),
            seeds=torch.tensor([seed]),
        )
        speculator.observe(batch)
        proposal = speculator.propose(batch)
        computed += len(consumed) - (len(drafts) - count + 1)
        tokens += emitted
        drafts, laws = proposal.token_ids[0].tolist(), proposal.logits
    return accepted, drafted, tokens


def test_probabilistic_drafts_of_the_target_itself_are_accepted(build, tiny_llama) -> None:
    model, _ = tiny_llama(0)
    for seed in range(3):
        speculator = build(4, draft=0, draft_sample_method="probabilistic")
        accepted, drafted, _ = probabilistic_rounds(speculator, model, Verifier("standard"), seed, 12)
        assert drafted == 44
        assert accepted == drafted


def test_one_hot_drafts_have_no_logits_and_are_accepted_less(build, tiny_llama) -> None:
    model, _ = tiny_llama(0)
    accepted, drafted, _ = probabilistic_rounds(build(4, draft=0), model, Verifier("standard"), 3, 20)
    assert accepted < drafted


def test_drafts_differ_by_seed_and_repeat_by_seed(build, tiny_llama) -> None:
    model, _ = tiny_llama(0)
    texts = []
    for seed in (1, 1, 2):
        speculator = build(3, draft=5, draft_sample_method="probabilistic")
        texts.append(probabilistic_rounds(speculator, model, Verifier("standard"), seed, 10)[2])
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("sizes", [(60, 52), (52, 60)])
def test_vocabularies_that_differ_in_padding(
    make_config, tiny_llama, target_handle, greedy_of, run_greedy, sizes: tuple[int, int]
) -> None:
    target, draft = tiny_llama(0, vocab_size=sizes[0]), tiny_llama(5, vocab_size=sizes[1])
    config = make_config(3, {"draft_sample_method": "probabilistic"}, draft={"model": draft[1]})
    speculator = DraftModelSpeculator(config, CPU)
    speculator.load(target_handle(target[0]))
    next_token = greedy_of(target[0])
    (request,) = run_greedy(speculator, next_token, [[1, sizes[0] - 1, 2]], max_tokens=20)
    plain = [1, sizes[0] - 1, 2]
    for _ in range(20):
        plain.append(next_token(plain))
    assert request.tokens == plain
    assert all(0 <= t < min(sizes) for d, _ in request.rounds for t in d)


def test_no_logits_are_kept_where_verification_looks_at_none(
    tell, make_config, make_batch, make_request, tiny_llama, target_handle
):
    """The store holds the laws that tokens were drawn from, and nothing in coupled verification."""
    for mode, kept in (("standard", True), ("block", True), ("coupled", False)):
        options = {"draft_sample_method": "probabilistic"}
        model = {"model": tiny_llama(5)[1]}
        config = make_config(2, options, draft=model, verification={"rejection_sample_method": mode})
        speculator = DraftModelSpeculator(config, CPU)
        speculator.load(target_handle(tiny_llama(0)[0]))
        speculator.start(0, torch.tensor([4, 5]))
        request = make_request(0, [4, 5], 20, 2, 2, temperature=0.9, seed=3)
        drafts = tell(speculator, make_batch([request], [[4, 5]], [0], [6]))
        assert len(drafts.token_ids[0]) == 2 and (drafts.logits is not None) is kept
        if kept:
            assert drafts.logits.dtype == torch.float32 and drafts.logits.shape == (1, 2, 60)
