from __future__ import annotations

import math

import pytest
import torch
from specdec_kernels.philox import host, reference, words

from specdec.verify.noise import NoiseLedger, NoiseReuse, Role, RoundNoise

KNOWN = [  # published known answers of philox4x32-10: key, counter, words
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (-1, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x299F31D0A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_known_answers(key, counter, expected):
    assert words.philox_words(key, *counter) == expected
    tensors = [torch.tensor([x]) for x in (key, *counter)]
    assert tuple(int(w) for w in reference.philox(*tensors)) == expected


def test_tensor_form_equals_integers():
    seeds = torch.randint(-(2**62), 2**62, (50,), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(50) * 977
    got = reference.uniform(seeds, positions, torch.arange(50) % 9, Role.ACCEPT)
    want = [words.uniform(int(s), int(p), i % 9, 2) for i, (s, p) in enumerate(zip(seeds, positions, strict=True))]
    assert got.tolist() == want


def test_array_form_equals_integers():
    groups = torch.tensor([0, 1, 7, 50_000])
    got = host.philox_groups(-(2**61) + 5, groups.numpy(), 900, 3, 2)
    assert [tuple(row) for row in got.tolist()] == [words.philox_words(-(2**61) + 5, int(g), 900, 3, 2) for g in groups]


def test_uniforms_are_open_and_even():
    n = 40_000
    one = torch.ones(n, dtype=torch.int64)
    u = reference.uniform(one * 7, torch.arange(n), one * 0, Role.TARGET)
    assert float(u.min()) > 0 and float(u.max()) < 1
    counts = torch.histc(u.float(), 20, 0, 1)
    chi2 = float(((counts - n / 20) ** 2 / (n / 20)).sum())
    assert chi2 < 66  # 1e-6 at 19 degrees of freedom
    assert words.uniform_from_words(0, 0) > 0
    assert words.uniform_from_words(words.MASK, words.MASK) < 1


def test_gumbel_has_the_right_moments_and_bound():
    g = reference.gumbel(torch.tensor([3]), torch.tensor([5]), torch.tensor([1]), Role.DRAFT, 100_003)[0]
    assert g.shape == (100_003,)
    assert abs(float(g.mean()) - 0.5772) < 0.03
    assert abs(float(g.var()) - math.pi**2 / 6) < 0.06
    extreme = reference.gumbel_from_words(torch.tensor([0, words.MASK]))
    assert 22.8 < float(extreme[0]) < 22.9 and extreme[1] < -2.5


def test_noise_of_a_token_does_not_depend_on_the_vocabulary_or_the_batch():
    args = (torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]), torch.tensor([0, 0, 0]), Role.TARGET)
    batch = reference.gumbel(*args, 1001)
    alone = reference.gumbel(*(a[1:2] if isinstance(a, torch.Tensor) else a for a in args), 37)
    assert torch.equal(batch[1, :37], alone[0])


def test_roles_slots_positions_and_seeds_are_different_streams():
    base = (11, 20, 1, Role.ACCEPT)
    variants = [base, (12, 20, 1, Role.ACCEPT), (11, 21, 1, Role.ACCEPT), (11, 20, 2, Role.ACCEPT)]
    variants += [(11, 20, 1, role) for role in Role if role != Role.ACCEPT]
    assert len({words.uniform(*v) for v in variants}) == len(variants)


def test_ledger_refuses_a_second_use():
    ledger = NoiseLedger()
    noise = RoundNoise(5, 10, ledger)
    noise.uniform(0, Role.ACCEPT)
    noise.uniform(0, Role.RESIDUAL)
    noise.uniform(1, Role.ACCEPT)
    with pytest.raises(NoiseReuse, match="position 10, slot 1, role accept"):
        noise.uniform(0, Role.ACCEPT)
    RoundNoise(5, 9, ledger).uniform(1, Role.ACCEPT)  # same position, another slot of another round
