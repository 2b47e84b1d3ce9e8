"""P-EAGLE heads: one pass over placeholders; with one draft they are EAGLE-3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eagle_heads as heads
import pytest
import torch

from specdec.drafts.eagle3 import Eagle3Draft
from specdec.drafts.errors import DraftError
from specdec.drafts.peagle import PEagleDraft
from specdec.model.target import prepare_target

TOKENS, MASK = [5, 17, 3, 44, 8], 60
HEAD = {
    **heads.COMMON,
    "architectures": ["PEagleDraftModel"],
    "draft_vocab_size": heads.REDUCED,
    "num_hidden_layers": 2,
    "ptd_token_id": MASK,
}


@pytest.fixture(scope="module")
def target() -> Any:
    return prepare_target(heads.target_model(), device="cpu").handle(128)


def tensors() -> heads.Tensors:
    stored = heads.eagle3_tensors(layers=2)
    stored["mask_hidden"] = torch.randn(1, 1, 3 * heads.HIDDEN, generator=torch.Generator().manual_seed(9))
    return stored


def states() -> torch.Tensor:
    return torch.randn(len(TOKENS), 3 * heads.HIDDEN, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def one_pass(network: PEagleDraft, k: int) -> torch.Tensor:
    """Logits [k, V_d] of the last pair and k - 1 placeholders, in one pass without a cache."""
    tokens = torch.tensor(TOKENS + [network.mask_token_id] * (k - 1))
    features = torch.cat((network.features(states()), network.placeholder().expand(k - 1, -1)))
    x = network.inputs(tokens, features, torch.arange(len(tokens)) == 0)
    hidden = network(x[None], torch.arange(len(tokens))[None], None, None)[0, -k:]
    return network.logits(hidden)


def test_one_draft_is_eagle3(tmp_path: Path, target: Any) -> None:
    stored = tensors()
    network = PEagleDraft.load(heads.resolved("peagle", heads.write(tmp_path / "p", HEAD, stored)), target)
    plain = {k: v for k, v in stored.items() if k != "mask_hidden"}
    config = {k: v for k, v in HEAD.items() if k != "ptd_token_id"} | {"architectures": ["LlamaForCausalLMEagle3"]}
    eagle3 = Eagle3Draft.load(heads.resolved("eagle3", heads.write(tmp_path / "e", config, plain)), target)
    with torch.no_grad():
        assert torch.equal(one_pass(network, 1), heads.chain(eagle3, TOKENS, states(), 1)[1])


def test_fewer_drafts_are_the_first_of_more(tmp_path: Path, target: Any) -> None:
    network = PEagleDraft.load(heads.resolved("peagle", heads.write(tmp_path, HEAD, tensors())), target)
    assert torch.allclose(one_pass(network, 3), one_pass(network, 7)[:3], atol=1e-5)


def test_layouts_give_equal_logits(tmp_path: Path, target: Any) -> None:
    stored = tensors()
    flat = stored | {"mask_hidden": stored["mask_hidden"].flatten()}
    layer = {k: v for k, v in heads.COMMON.items() if k != "architectures"} | {"num_hidden_layers": 2}
    speculators = {
        "speculators_model_type": "peagle",
        "architectures": ["PEagleDraftModel"],
        "transformer_layer_config": layer,
        "draft_vocab_size": heads.REDUCED,
        "mask_token_id": MASK,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    }
    amazon = {**HEAD, "architectures": ["LlamaForCausalLM"]}
    layouts = [(HEAD, stored), (speculators, flat), (amazon, heads.midlayer(stored))]
    logits = [
        one_pass(PEagleDraft.load(heads.resolved("peagle", heads.write(tmp_path / str(i), *layout)), target), 4)
        for i, layout in enumerate(layouts)
    ]
    assert all(torch.equal(logits[0], other) for other in logits[1:])


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        ({"ptd_token_id": None}, {}, "names no mask token"),
        ({"ptd_token_id": 61}, {}, "mask token 61 is outside"),
        ({}, {"mask_hidden": torch.ones(1, 64)}, r"mask_hidden has shape \[1, 64\], but 96"),
    ],
)
def test_refuses_what_does_not_fit(
    tmp_path: Path, target: Any, config: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    with pytest.raises(DraftError, match=says):
        path = heads.write(tmp_path, {**HEAD, **config}, tensors() | change)
        PEagleDraft.load(heads.resolved("peagle", path), target)
