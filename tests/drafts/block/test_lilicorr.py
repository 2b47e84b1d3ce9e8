"""LiLiCorr against torch's own attention and a loop over transitions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from block_checkpoints import LILICORR, backbone, cells, convolutions, resolved, save, shared
from block_run import Run

from specdec.drafts.block.lilicorr import LiLiCorrDraft


def load(folder: Path, **nested: object) -> LiLiCorrDraft:
    config = LILICORR | {"dflash_config": LILICORR["dflash_config"] | nested}
    tensors = backbone(config) | cells(config)
    if "conv_kernel_size" in nested:
        tensors |= convolutions(config)
    settings = resolved(save(folder, config, tensors), k=4)
    assert settings.method == "lilicorr"
    return LiLiCorrDraft.load(settings, shared())


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


@torch.no_grad()
@pytest.mark.parametrize("nested", [{}, {"lilicorr_hidden_size": 0}, {"conv_kernel_size": 2, "conv_group_size": 8}])
def test_head_equals_torch_attention_and_loops(nested: dict[str, int], tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path, **nested)
    head = network.lilicorr
    hidden, context = Run(network, states, 11, 5).hidden()[0], network.features(states[-1:])[0]
    best = torch.log_softmax(hidden[1:] @ shared().lm_head.weight.T, -1).topk(4)
    cells_in, slots, top = [], 4, 4
    for s in range(slots):
        for c in range(top):
            logp = best.values[s, c]
            features = torch.stack(
                [logp, logp.exp(), logp - best.values[s].max(), torch.tensor(c / 3), torch.tensor(float(c == 0))]
            )
            x = head.token_proj(shared().embed_tokens.weight[best.indices[s, c]]) + head.pass_hidden_proj(hidden[1 + s])
            x = x + head.feature_mlp.down_proj(F.silu(head.feature_mlp.up_proj(head.feature_norm(features))))
            cells_in.append(x + head.slot_embedding[0, 0, s, 0] + head.rank_embedding[0, 0, 0, c])
    x, mask = torch.stack(cells_in), torch.zeros(2, 16, 16)
    for h in range(2):
        for q in range(16):
            for k in range(16):
                mask[h, q, k] = head.relative_slot_bias[h, q // 4 - k // 4 + 4] + head.same_slot_bias[h] * (
                    q // 4 == k // 4
                )
    for layer in head.layers:
        normed = rms(x, layer.attn_norm.weight)[None]
        x = x + layer.attn(normed, normed, normed, attn_mask=mask, need_weights=False)[0][0]
        x = x + layer.mlp.down_proj(F.silu(layer.mlp.up_proj(rms(x, layer.mlp_norm.weight))))
    x, a = rms(x, head.output_norm.weight), rms(head.context_proj(context), head.anchor_norm.weight)
    f = F.silu(head.factor_input_proj(torch.cat([x, a.expand_as(x), x * a], -1)))
    leaving, entering = (part / part.norm(dim=-1, keepdim=True) for part in (head.out_head(f), head.in_head(f)))
    start = head.anchor_out_head(a)
    vector, drafts, scored = start / start.norm(), [], []
    for s in range(slots):
        scores = 5.0 * torch.stack([vector @ entering[4 * s + j] for j in range(4)])
        choice = int(scores.argmax())
        vector = leaving[4 * s + choice]
        drafts.append(int(best.indices[s, choice]))
        scored.append(scores)
    ours = Run(network, states, 11, 5).greedy(4)
    assert ours[0] == drafts
    assert torch.allclose(torch.stack(ours[1]), torch.stack(scored), atol=1e-4)


@torch.no_grad()
def test_a_shorter_block_uses_the_first_slots(tmp_path: Path, states: torch.Tensor) -> None:
    network = load(tmp_path)
    head, rows = network.lilicorr, torch.randn(1, 2, 32)
    logp, context = torch.randn(1, 2, 4).sort(descending=True).values, torch.randn(1, 32)
    tokens = torch.randn(1, 2, 4, 32)
    leaving, entering, anchor = head(tokens, rows, logp, context)
    assert leaving.shape == entering.shape == (1, 2, 4, 6) and anchor.shape == (1, 6)
    assert torch.allclose(entering.norm(dim=-1), torch.ones(1, 2, 4), atol=1e-5)
    assert len(Run(network, states, 11, 3).greedy(2)[0]) == 2
