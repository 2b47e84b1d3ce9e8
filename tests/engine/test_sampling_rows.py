"""Processed target logits against a slow oracle that handles one row at a time, in the documented order."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from specdec.engine.sampling.rows import RequestSampling, gather_logprobs, process_rows, truncate_
from specdec.engine.sampling.sampling_params import SamplingParams

V = 24
EOS = 3


def oracle(logits: list[float], params: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    row = list(logits)
    if params.allowed_token_ids is not None:
        row = [x if t in params.allowed_token_ids else -math.inf for t, x in enumerate(row)]
    for token, bias in (params.logit_bias or {}).items():
        row[token] += bias
    if len(output) < params.min_tokens:
        for token in (EOS, *(params.stop_token_ids or ())):
            row[token] = -math.inf
    counts = Counter(output)
    for t in range(V):
        if counts[t] or t in prompt:
            row[t] = row[t] / params.repetition_penalty if row[t] > 0 else row[t] * params.repetition_penalty
        row[t] -= params.frequency_penalty * counts[t] + params.presence_penalty * (counts[t] > 0)
    for *head, last in params.bad_words_token_ids or ():
        if not head or output[-len(head) :] == head:
            row[last] = -math.inf
    if params.temperature == 0:
        return row
    scaled = [x / params.temperature for x in row]
    if params.min_p:
        floor = max(scaled) + math.log(params.min_p)
        scaled = [x if x >= floor else -math.inf for x in scaled]
    if params.top_k:
        floor = sorted(scaled, reverse=True)[params.top_k - 1]
        scaled = [x if x >= floor else -math.inf for x in scaled]
    if params.top_p < 1:
        top = max(scaled)
        weights = [math.exp(x - top) for x in scaled]
        total, above, kept = sum(weights), 0.0, set()
        for t in sorted(range(V), key=lambda t: -scaled[t]):
            if above < params.top_p * total:
                kept.add(t)
            above += weights[t]
        scaled = [x if t in kept else -math.inf for t, x in enumerate(scaled)]
    return [r if s > -math.inf else -math.inf for r, s in zip(row, scaled, strict=True)]


CASES = {
    "plain": {},
    "greedy with bias": {"temperature": 0.0, "logit_bias": {1: 2.5, 4: -100.0}},
    "min-p": {"temperature": 0.7, "min_p": 0.2},
    "top-k": {"top_k": 3},
    "top-p": {"temperature": 1.3, "top_p": 0.6},
    "all three": {"temperature": 0.8, "min_p": 0.02, "top_k": 9, "top_p": 0.9},
    "allowed": {"allowed_token_ids": [1, 5, 6]},
    "min tokens": {"min_tokens": 6, "stop_token_ids": [7]},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.3},
    "negative repetition": {"repetition_penalty": 0.8},
    "bad words": {"bad_words_token_ids": [[2], [5, 6], [9, 2, 8]]},
    "everything": {
        "temperature": 0.9,
        "top_p": 0.95,
        "top_k": 12,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "logit_bias": {5: 3.0},
        "min_tokens": 5,
        "bad_words_token_ids": [[5, 5]],
    },
}
DRAFTS = [5, 5, 9, 2]


def make(name: str, prompt: list[int], output: list[int]) -> RequestSampling:
    request = RequestSampling(SamplingParams(**CASES[name]), prompt, V, eos_token_ids=[EOS])
    request.commit(output[:1])
    request.commit(output[1:])
    return request


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_each_row_equals_the_oracle_on_its_own_prefix(name: str, seed: int) -> None:
    logits = torch.randn(5, V, generator=torch.Generator().manual_seed(seed)) * 2
    prompt, output = [1, 5, 5], [4, 9, 2]
    got = process_rows(logits, [make(name, prompt, output)], [0, 5], [DRAFTS])
    want = [
        oracle(logits[i].tolist(), SamplingParams(**CASES[name]), prompt, output + DRAFTS[:i])
        for i in range(len(logits))
    ]
    torch.testing.assert_close(got, torch.tensor(want))


def test_a_batch_equals_its_requests_alone_and_leaves_the_raw_logits() -> None:
    names = list(CASES)
    widths = [1 + i % 5 for i in range(len(names))]
    offsets = [sum(widths[:i]) for i in range(len(widths) + 1)]
    logits = torch.randn(offsets[-1], V, generator=torch.Generator().manual_seed(9))
    raw = logits.clone()
    drafts = [DRAFTS[: w - 1] for w in widths]
    got = process_rows(logits, [make(n, [1, 5], [4, 9]) for n in names], offsets, drafts)
    assert torch.equal(logits, raw)
    for r, name in enumerate(names):
        rows = logits[offsets[r] : offsets[r + 1]]
        alone = process_rows(rows, [make(name, [1, 5], [4, 9])], [0, widths[r]], [drafts[r]])
        assert torch.equal(got[offsets[r] : offsets[r + 1]], alone)


def test_plain_requests_cost_no_copy() -> None:
    logits = torch.randn(2, V, dtype=torch.bfloat16)
    request = RequestSampling(SamplingParams(temperature=0.3, max_tokens=5, stop=["x"]), [1], V)
    assert process_rows(logits, [request, request], [0, 1, 2], [[], []]) is logits


def test_placeholders_count_nothing() -> None:
    logits = torch.ones(4, V)
    got = process_rows(logits, [make("penalties", [], [4])], [0, 4], [[-1, 4, 4]])
    assert torch.equal(got[0], got[3])


def test_ties_at_a_threshold_are_kept() -> None:
    for options in ({"top_k": 2}, {"top_p": 0.4}):
        rows = torch.tensor([[2.0, 1.0, 1.0, 1.0, -5.0]])
        truncate_(rows, 1.0, **options)
        assert (rows > -math.inf).tolist() == [[True, *[options != {"top_p": 0.4}] * 3, False]]
    rows = torch.zeros(1, 5000)
    truncate_(rows, 1.0, top_p=0.9)
    assert bool((rows == 0).all())


def test_top_p_looks_past_its_first_candidates() -> None:
    rows = torch.linspace(0, 0.5, 3000)[torch.randperm(3000, generator=torch.Generator().manual_seed(1))][None]
    want = rows.softmax(-1).sort(descending=True).values
    kept = int((want.cumsum(-1) - want < 0.8).sum())
    truncate_(rows, 1.0, top_p=0.8)
    assert int((rows > -math.inf).sum()) == kept


def test_a_row_with_nothing_left_may_only_end() -> None:
    params = SamplingParams(allowed_token_ids=[4], bad_words_token_ids=[[4, 4]], top_p=0.5)
    request = RequestSampling(params, [], V, eos_token_ids=[EOS])
    rows = process_rows(torch.randn(2, V), [request], [0, 2], [[4]])
    assert rows[0].argmax() == 4
    assert (rows[1] > -math.inf).nonzero().flatten().tolist() == [EOS]


def test_nan_rows_are_defined() -> None:
    request = make("top-p", [], [])
    rows = process_rows(torch.full((1, V), float("nan")), [request], [0, 1], [[]])
    assert (rows > -math.inf).nonzero()[:, 1].tolist() == [EOS]


class Alternate:
    """(ab)*: after a comes b; raises on a prefix outside the language, as real grammars do."""

    def __init__(self, a: int, b: int) -> None:
        self.pair, self.asked = (a, b), []

    def allowed(self, prefix):
        self.asked.append(list(prefix))
        if any(t != self.pair[i % 2] for i, t in enumerate(prefix)):
            raise RuntimeError(f"outside the grammar: {prefix}")
        mask = torch.zeros(V, dtype=torch.bool)
        mask[self.pair[len(prefix) % 2]] = True
        return mask


def test_a_constraint_sees_only_prefixes_it_allows() -> None:
    grammar = Alternate(7, 8)
    request = RequestSampling(SamplingParams(temperature=0, constraint=grammar), [1], V)
    request.commit([7])
    rows = process_rows(torch.randn(4, V), [request], [0, 4], [[8, 2, 7]])  # the draft 2 is outside
    assert grammar.asked == [[7], [7, 8]]
    assert rows.argmax(-1).tolist()[:2] == [8, 7]
    request.commit([8, 7])
    process_rows(torch.randn(1, V), [request], [0, 1], [[]])
    assert grammar.asked[-1] == [7, 8, 7]


def test_logprobs_are_raw_with_ranks() -> None:
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(2), dtype=torch.float64).float()
    tokens = torch.tensor([0, int(logits[1].argmax()), 5])
    got = gather_logprobs(logits, tokens, top=2)
    want = logits.double().log_softmax(-1)
    torch.testing.assert_close(got.values[:, 0].double(), want[range(3), tokens], atol=1e-6, rtol=1e-6)
    assert got.ranks[1] == 1
    assert got.ranks[0] == int((logits[0] >= logits[0, 0]).sum())
    assert got.token_ids.shape == (3, 3)
    assert got.token_ids[1, 1] == tokens[1]
    assert gather_logprobs(logits, tokens, top=0).values.shape == (3, 1)
    assert gather_logprobs(logits, tokens, top=-1).values.shape == (3, 1 + V)
