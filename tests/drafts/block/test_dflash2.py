"""DFlash2: convolutions against loops, the selector against scoring every path step by step, and its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from block_checkpoints import DFLASH, DFLASH2, HIDDEN, backbone, convolutions, resolved, save, selector, shared
from block_run import Run

from specdec.config.findings.diagnostics import ConfigError
from specdec.drafts.block.dflash2 import DFlash2Draft, DynamicConvolution
from specdec.drafts.block.network import BlockDraft


def load(folder: Path, **nested: object) -> DFlash2Draft:
    config = DFLASH2 | {"dflash_config": DFLASH2["dflash_config"] | nested}
    tensors = backbone(config) | convolutions(config) | selector(config)
    settings = resolved(save(folder, config, tensors), k=4)
    assert settings.method == "dflash2"
    return DFlash2Draft.load(settings, shared())


def loops(conv: DynamicConvolution, u: torch.Tensor, side: int, x: torch.Tensor) -> torch.Tensor:
    """One side of the convolution of one block [B, H], as the formula says it."""
    taps, size = conv.base_kernel.shape[1:]
    groups = conv.kernel_projection.out_features // (2 * taps)
    delta = (u @ conv.kernel_projection.weight.T).reshape(len(u), 2, taps, groups)
    out = torch.zeros_like(x)
    for i in range(len(x)):
        for t in range(min(taps, i + 1)):
            for c in range(size):
                out[i, c] += (conv.base_kernel[side, t, c] + delta[i, side, t, c * groups // size]) * x[i - t, c]
    return out


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_convolution_equals_the_loops_and_stays_inside_a_block(rows: int, tmp_path: Path) -> None:
    conv = load(tmp_path).layers[0].attention_conv
    u = torch.randn(2, rows, HIDDEN)
    out = conv(u, torch.tanh)
    for r in range(2):
        expected = loops(conv, u[r], 1, torch.tanh(loops(conv, u[r], 0, u[r])))
        assert torch.allclose(out[r], expected, atol=1e-4)
    other = u.clone()
    other[0] = 0
    assert torch.equal(conv(other, torch.tanh)[1], out[1])


@torch.no_grad()
def test_a_shorter_block_is_the_start_of_a_longer_one_in_the_convolutions(tmp_path: Path) -> None:
    conv, u = load(tmp_path).layers[0].mlp_conv, torch.randn(1, 5, HIDDEN)
    assert torch.allclose(conv(u, torch.tanh)[:, :3], conv(u[:, :3], torch.tanh), atol=1e-6)


@torch.no_grad()
def test_convolutions_leave_the_context_alone(tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path / "two")
    plain = BlockDraft.load(resolved(save(tmp_path / "one", DFLASH, backbone(DFLASH)), "dflash", 4), shared())
    ours, theirs = Run(network, states, 3, 5), Run(plain, states, 3, 5)
    assert not torch.allclose(ours.hidden(), theirs.hidden())
    assert torch.equal(ours.cache.layers[0].keys[:, :, :9], theirs.cache.layers[0].keys[:, :, :9])


@torch.no_grad()
@pytest.mark.parametrize("count", [4, 2])
def test_walk_equals_scoring_all_successors(count: int, tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path)
    select, hidden = network.candidate_selector, Run(network, states, 11, 5).hidden()[0]
    previous, drafts, scored = 11, [], []
    for h in hidden[1 : 1 + count]:
        best = (h @ shared().lm_head.weight.T).topk(4)
        unary = 4.0 * torch.tanh(best.values * 0.5 / 4.0)
        g = select.hidden_projection.weight @ h
        scores = torch.stack([
            value + sum(select.predecessor_codebook[previous][j] * g[j] * select.successor_codebook[i][j] for j in range(6))
            for value, i in zip(unary, best.indices, strict=True)
        ])  # fmt: skip
        previous = int(best.indices[scores.argmax()])
        drafts.append(previous)
        scored.append(scores)
    ours = Run(network, states, 11, 5).greedy(count)
    assert ours[0] == drafts
    assert torch.allclose(torch.stack(ours[1]), torch.stack(scored), atol=1e-4)


def test_the_beam_variant_is_recognised_as_the_same_method(tmp_path: Path) -> None:
    config = DFLASH2 | {"architectures": ["DFlash2BeamDraftModel"]}
    folder = save(tmp_path, config, backbone(config) | convolutions(config) | selector(config))
    settings = resolved(folder, k=4)
    assert settings.method == "dflash2" and DFlash2Draft.load(settings, shared()).top == 4


def test_sampling_from_the_anchor_is_refused(tmp_path: Path) -> None:
    config = DFLASH2 | {"sample_from_anchor": True}
    folder = save(tmp_path, config, backbone(config) | convolutions(config) | selector(config))
    with pytest.raises(ConfigError, match="anchor"):
        resolved(folder, k=4)
