"""Domino: the recurrence written out by gates, the uncorrected start, and both layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from block_checkpoints import DOMINO, backbone, prefix_encoder, resolved, save, shared
from block_run import Run

from specdec.drafts.block.domino import DominoDraft


@torch.no_grad()
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("untouched", [0, 1, 2])
def test_corrections_equal_the_gates_written_out(
    shift: bool, untouched: int, tmp_path: Path, states: torch.Tensor
) -> None:
    config = DOMINO | {
        "dflash_config": DOMINO["dflash_config"] | {"shift_label": shift, "pure_draft_prefix_len": untouched}
    }
    tensors = backbone(config) | prefix_encoder(config)
    settings = resolved(save(tmp_path, config, tensors), k=3)
    assert settings.method == "domino" and settings.numbers.draft_query_rows == (3 if shift else 4)
    network = DominoDraft.load(settings, shared())
    rows = 3 if shift else 4
    hidden = Run(network, states, 11, rows).hidden()[0]
    state, previous, drafts = torch.zeros(10), 11, []
    for step, h in enumerate(hidden if shift else hidden[1:]):
        e = shared().embed_tokens.weight[previous]
        gates, kept = tensors["prefix_gru.weight_ih_l0"] @ e, tensors["prefix_gru.weight_hh_l0"] @ state
        reset, update = torch.sigmoid(gates[:10] + kept[:10]), torch.sigmoid(gates[10:20] + kept[10:20])
        fresh = torch.tanh(gates[20:] + reset * kept[20:])
        state = (1 - update) * fresh + update * state
        logits = shared().lm_head.weight @ h
        if step >= untouched:
            narrow = F.silu(tensors["embed_proj.0.weight"] @ torch.cat([h, state]))
            logits = logits + tensors["embed_proj.2.weight"] @ narrow
        previous = int(logits.argmax())
        drafts.append(previous)
    assert Run(network, states, 11, rows).greedy(3)[0] == drafts


def test_a_projector_named_in_a_dflash_config_is_enough(tmp_path: Path) -> None:
    config = DOMINO | {"architectures": ["DFlashDraftModel"]}
    assert resolved(save(tmp_path, config, backbone(config) | prefix_encoder(config)), k=3).method == "domino"
