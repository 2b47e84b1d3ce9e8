"""Rows of logits by the compiled kernels against their PyTorch forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from specdec_kernels.cpu import build
from specdec_kernels.cpu.rows import NativeRows

from specdec.verify import row_law, row_tops

SIZES = [1, 7, 33, 256, 257, 1000, 4099]


@pytest.fixture(scope="module", params=["f32", "bf16"])
def kind(request):
    try:
        library = build.load()
    except build.NativeUnavailable as error:
        pytest.fail(str(error))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[request.param]
    return NativeRows(library, request.param), dtype


def logits(rows, size, dtype, scale=3.0):
    return (torch.randn(rows, size, generator=torch.Generator().manual_seed(size)) * scale).to(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_tops_are_the_first_maxima(kind, size):
    native, dtype = kind
    ties = torch.randint(-3, 3, (5, size), generator=torch.Generator().manual_seed(size)).to(dtype)
    for x in (ties, -ties.abs() - 1, logits(5, size, dtype), logits(5, size + 3, dtype)[:, 2:-1]):
        assert native.tops(x) == row_tops._by_blocks(x)


def test_tops_of_rows_that_are_not_finite(kind):
    native, dtype = kind
    x = logits(4, 300, dtype)
    x[0, 40], x[1, 299], x[2, 7], x[3] = math.nan, -math.nan, math.inf, -math.inf
    maxima, tokens = native.tops(x)
    assert math.isnan(maxima[0]) and math.isnan(maxima[1])
    assert (maxima[2:], tokens[2:]) == ([math.inf, -math.inf], [7, 0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("temperature", [0.05, 0.8, 1.0, 2.5])
def test_weights_are_the_softmax(kind, size, temperature):
    native, dtype = kind
    x = logits(1, size, dtype)[0]
    x[size // 2] = -math.inf
    top = float(x.max()) if size > 1 else 0.0
    weights, masses = native.weights(x, top, temperature)
    want = ((x.double() - top) / temperature).exp()
    assert torch.allclose(weights.double(), want, rtol=2e-5, atol=1e-37)  # (x - top) / T is rounded to float32
    assert np.allclose(masses, row_law.block_masses(weights), rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_draws_are_those_of_the_inverse_cdf(kind, size, monkeypatch):
    monkeypatch.setattr(row_law, "native_rows", lambda rows: None)
    native, dtype = kind
    x = logits(1, size, dtype)[0]
    if size > 2:
        x[: size // 3] = -math.inf
    top = float(x.max())
    weights, masses = native.weights(x, top, 0.8)
    generator = torch.Generator().manual_seed(1)
    for u in (2.0**-53, 1 - 2.0**-53, *torch.rand(50, generator=generator, dtype=torch.float64).tolist()):
        token = native.draw(weights, masses, u)
        assert token == row_law.draw_inverse_cdf(weights, u, masses) == native.sample(x, top, 0.8, u)
        assert weights[token] > 0
    # a goal beyond all mass, as rounding may leave it
    assert native.draw(weights, masses, 1.5) == int(weights.nonzero()[-1])


def test_no_mass_is_no_token():
    try:
        native = NativeRows(build.load(), "f32")
    except build.NativeUnavailable as error:
        pytest.fail(str(error))
    assert native.draw(torch.zeros(600), np.zeros(3), 0.5) == -1


def test_one_law_whatever_asks_for_it_first(kind, monkeypatch):
    native, dtype = kind
    monkeypatch.setattr(row_law, "native_rows", lambda rows: native if rows.dtype == dtype else None)
    x = logits(1, 4099, dtype)[0]
    for u in (0.1, 0.5, 0.9):
        law = row_law.RowLaw(x, 0.8)
        first = law.draw(u)
        assert law.prob(first) > 0
        assert law.draw(u) == first  # now from the weights
