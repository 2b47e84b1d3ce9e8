"""XPress: passes settle from the left, block - 1 of them are the sequential greedy decoding, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from block_checkpoints import VOCAB, XPRESS, backbone, refiner, resolved, save, shared
from block_run import Run

from specdec.config.findings.diagnostics import ConfigError
from specdec.drafts.block.xpress import XPressDraft


def load(folder: Path, seed: int = 5, rename: Any = None, k: int = 4, **changes: Any) -> XPressDraft:
    config = XPRESS | {name: value for name, value in changes.items() if name in XPRESS}
    options = {name: value for name, value in changes.items() if name not in XPRESS}
    tensors = backbone(config) | refiner(config, seed)
    if rename is not None:
        tensors = {rename(name): tensor for name, tensor in tensors.items()}
    settings = resolved(save(folder, config, tensors), k=k, **options)
    assert settings.method == "xpress"
    return XPressDraft.load(settings, shared())


@torch.no_grad()
def sequential(network: XPressDraft, hidden: torch.Tensor, anchor: int) -> list[int]:
    """Row after row: the best token given those before, with explicit sums instead of matrices."""
    head, block = network.xpress_head, [anchor]
    fixed = torch.cat(
        [torch.stack([head.down_h.weight @ h for h in hidden]), (head.down_g.weight @ hidden.mean(0)).expand(5, -1)], -1
    )
    mix = head.mix.L.tril()
    for b in range(1, 5):
        before = [anchor, *block]
        x = [head.in_proj.weight @ torch.cat([fixed[j], head.w1.weight[before[j]]]) for j in range(b + 1)]
        u = x[b] + sum(mix[:, b, j] * x[j] for j in range(b + 1))
        mlp = head.mlp
        y = u + mlp.down_proj.weight @ (F.silu(mlp.gate_proj.weight @ u) * (mlp.up_proj.weight @ u))
        logits = shared().lm_head.weight @ hidden[b] + head.w2.weight @ y
        block.append(int(logits.argmax()))
    return block[1:]


@pytest.mark.parametrize("seed", range(12))
def test_block_minus_one_passes_are_the_sequential_decoding_and_settle_from_the_left(
    seed: int, tmp_path: Path, states: torch.Tensor
) -> None:
    network = load(tmp_path, seed)
    hidden = Run(network, states, 11, 5).hidden()
    expected = sequential(network, hidden[0], 11)
    assert Run(network, states, 11, 5).greedy(4)[0] == expected
    for passes in range(1, 4):
        network.passes = passes
        assert Run(network, states, 11, 5).greedy(4)[0][:passes] == expected[:passes]


def test_narrowing_to_all_is_no_narrowing_and_to_one_is_dflash(tmp_path: Path, states: torch.Tensor) -> None:
    full = load(tmp_path / "full")
    assert (
        Run(load(tmp_path / "all", xpress_topc=VOCAB), states, 3, 5).greedy(4)[0]
        == Run(full, states, 3, 5).greedy(4)[0]
    )
    one = load(tmp_path / "one", xpress_topc=1)
    hidden = Run(one, states, 3, 5).hidden()[0]
    assert Run(one, states, 3, 5).greedy(4)[0] == (hidden[1:] @ shared().lm_head.weight.T).argmax(-1).tolist()
    few = load(tmp_path / "few", xpress_topc=5)
    best = (Run(few, states, 3, 5).hidden()[0, 1:] @ shared().lm_head.weight.T).topk(5).indices
    assert all(token in row.tolist() for token, row in zip(Run(few, states, 3, 5).greedy(4)[0], best, strict=True))


def test_the_speculators_spelling_is_the_same_network(tmp_path: Path, states: torch.Tensor) -> None:
    spelt = {
        "w1": "token_embed",
        "w2": "readout",
        "mlp.gate_proj": "mlp_gate",
        "mlp.up_proj": "mlp_up",
        "mlp.down_proj": "mlp_down",
    }

    def rename(name: str) -> str:
        for own, theirs in spelt.items():
            name = name.replace(f"xpress_head.{own}.", f"refiner_head.{theirs}.")
        return name.replace("xpress_head.mix.L", "refiner_head.mix_l").replace("xpress_head.", "refiner_head.")

    other, native = load(tmp_path / "other", rename=rename), load(tmp_path / "native")
    assert Run(other, states, 3, 5).greedy(4)[0] == Run(native, states, 3, 5).greedy(4)[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 3}, "exactly 5 rows"),
        ({"draft_sample_method": "probabilistic"}, "draft_sample_method"),
        ({"enable_adaptive_verification": True}, "enable_adaptive_verification"),
        ({"sample_from_anchor": True}, "anchor"),
    ],
)
def test_what_would_not_be_lossless_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    config = XPRESS | {name: value for name, value in options.items() if name == "sample_from_anchor"}
    folder = save(tmp_path, config, backbone(config) | refiner(config))
    rest = {name: value for name, value in options.items() if name != "sample_from_anchor"}
    with pytest.raises(ConfigError, match=words):
        resolved(folder, "xpress", **{"k": 4, **rest})
