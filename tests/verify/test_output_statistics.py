"""Whole generations of a toy model against its exact law: several rounds, ragged k, seeded noise, real sampler.

Bound: chi-square at false-alarm rate 1e-6 a test, on fixed seeds. With N = 600 over 27 bins a bias of total variation
0.2 is found with probability above 0.99; smaller ones are the business of the exact proofs.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specdec.verify import NoiseLedger, Verifier, draw_drafts
from specdec.verify.noise import NoiseReuse, Role, RoundNoise

V, LENGTH, N = 3, 3, 600
TEMPERATURE = 0.8


def table(seed, opposed=None):
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for n in range(LENGTH + 4):
        for prefix in itertools.product(range(V), repeat=n):
            if n > 2:  # the model sees the last two tokens and the parity of the position
                out[prefix] = out[prefix[n % 2 :][:1] + prefix[-1:]]
            elif opposed is not None:
                out[prefix] = -opposed[prefix]
            else:
                out[prefix] = torch.randn(V, generator=generator) * 1.2
    return out


TARGET = table(0)
DRAFT = table(0, opposed=TARGET)


def exact_law():
    law = {}
    for tokens in itertools.product(range(V), repeat=LENGTH):
        p = 1.0
        for i, x in enumerate(tokens):
            p *= float(torch.softmax(TARGET[tokens[:i]].double() / TEMPERATURE, 0)[x])
        law[tokens] = p
    return law


def chi_square(counts, law, total):
    return sum((counts.get(t, 0) - p * total) ** 2 / (p * total) for t, p in law.items())


def bound(df, z=4.9):
    """Wilson-Hilferty quantile of the chi-square law at 1e-6."""
    return df * (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3


def generate(verifier, seed, one_hot, coupled, gumbel):
    tokens = ()
    while len(tokens) < LENGTH:
        k = (seed + len(tokens)) % 3 + 1
        drafts, q = [], []
        for step in range(k):
            logits = DRAFT[(*tokens, *drafts)]
            kw = {"temperature": [TEMPERATURE], "seeds": [seed], "starts": [len(tokens)], "step": step}
            drafts.append(int(draw_drafts(logits[None], coupled=coupled, gumbel=gumbel, **kw).token_ids))
            q.append(logits)
        x = torch.stack([TARGET[(*tokens, *drafts[:i])] for i in range(k + 1)])
        out = verifier(
            x, torch.tensor([drafts]), temperature=[TEMPERATURE], seeds=[seed], positions=[len(tokens)],
            draft_laws=None if one_hot else torch.stack(q)[None],
        )  # fmt: skip
        tokens += tuple(out.token_ids[0, : int(out.num_sampled)].tolist())
    return tokens[:LENGTH]


def statistic(mode, one_hot=False, draw="inverse_cdf", ledger=None, n=N):
    verifier = Verifier(mode, draw=draw, ledger=ledger)
    counts = {}
    for seed in range(n):
        tokens = generate(verifier, seed, one_hot, mode == "coupled", draw == "gumbel")
        counts[tokens] = counts.get(tokens, 0) + 1
    return chi_square(counts, exact_law(), n)


@pytest.mark.parametrize(
    ("mode", "one_hot", "draw"),
    [
        ("standard", False, "inverse_cdf"),
        ("standard", True, "gumbel"),
        ("block", False, "inverse_cdf"),
        ("coupled", False, "inverse_cdf"),
    ],
)
def test_generations_follow_the_target(mode, one_hot, draw):
    ledger = None if mode == "coupled" else NoiseLedger()
    assert statistic(mode, one_hot, draw, ledger, N) < bound(V**LENGTH - 1)


def shared_with_draft(self, index, role):
    """Planted bug: the correction token reuses the noise of the draft it replaces."""
    role = Role.DRAFT if role is Role.RESIDUAL else role
    return self.seed, self.start + index, 0 if role is Role.TARGET else index + 1, int(role)


def test_shared_noise_is_caught(monkeypatch):
    p, q = torch.tensor([0.005, 0.745, 0.25]), torch.tensor([0.5, 0.49, 0.01])

    def spread(n):
        verifier, counts = Verifier("standard", draw="gumbel"), {}
        x, laws = p.log().repeat(2, 1), q.log().view(1, 1, V)
        for seed in range(n):
            kw = {"temperature": [1.0], "seeds": [seed]}
            drawn = draw_drafts(laws[0], starts=[0], step=0, gumbel=True, **kw)
            token = int(verifier(x, drawn.token_ids.view(1, 1), positions=[0], draft_laws=laws, **kw).token_ids[0, 0])
            counts[token] = counts.get(token, 0) + 1
        return chi_square(counts, dict(enumerate(p.tolist())), n)

    assert spread(600) < bound(V - 1)
    monkeypatch.setattr(RoundNoise, "key", shared_with_draft)
    assert spread(1800) > bound(V - 1)


def test_noise_keyed_by_position_only_is_caught_by_the_ledger(monkeypatch):
    def position_only(self, index, role):
        self.ledger.record(self.seed, self.start + index, 0, role)
        return self.seed, self.start + index, 0, int(role)

    monkeypatch.setattr(RoundNoise, "key", position_only)
    with pytest.raises(NoiseReuse):
        statistic("block", ledger=NoiseLedger(), n=50)


def test_residual_without_the_draft_law_is_caught(monkeypatch):
    from specdec.verify.eager_round import EagerRound

    honest = EagerRound.draw_residual
    monkeypatch.setattr(EagerRound, "draw_residual", lambda r, row, w: honest(r, row, r.target_law(row)))
    assert statistic("standard", n=400) > bound(V**LENGTH - 1)


def test_a_rounded_cache_of_draft_logits_is_another_law():
    """Why the store refuses another dtype: the probabilities of bf16-rounded logits differ from the drawn law."""
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(2)) * 3 + 15
    tv = (torch.softmax(logits, 0) - torch.softmax(logits.bfloat16().float(), 0)).abs().sum() / 2
    assert tv > 1e-3
