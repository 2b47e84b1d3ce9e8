"""EAGLE-1 heads: the formulas, and the layouts they are published in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import eagle_heads as heads
import pytest
import torch
from specdec_kernels.cpu import build

from specdec.drafts.eagle import EagleDraft
from specdec.drafts.errors import DraftError
from specdec.drafts.native.check import native_draft
from specdec.model.kv_cache import SlotCache
from specdec.model.target import prepare_target

TOKENS = [5, 17, 3, 44, 8]


@pytest.fixture(scope="module")
def target() -> Any:
    return prepare_target(heads.target_model(), device="cpu").handle(128)


def states(width: int = heads.HIDDEN) -> torch.Tensor:
    return torch.randn(len(TOKENS), width, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def drafts(path: str, target: Any, k: int = 4) -> tuple[list[int], torch.Tensor]:
    return heads.chain(EagleDraft.load(heads.resolved("eagle", path), target), TOKENS, states(), k)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_equals_the_formulas(tmp_path: Path, target: Any, bias: bool) -> None:
    tensors = heads.eagle1_tensors(bias=bias)
    ours = drafts(heads.write(tmp_path, heads.COMMON, tensors), target)
    embed, head = target.embed_tokens.weight, target.lm_head.weight
    theirs = heads.reference(tensors, embed, head, TOKENS, states(), 4)
    assert ours[0] == theirs[0] and torch.allclose(ours[1], theirs[1], atol=2e-3)


@torch.no_grad()
def test_layouts_give_equal_logits(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle1_tensors(bias=True)
    expected = drafts(heads.write(tmp_path / "plain", heads.COMMON, tensors), target)[1]
    own = tensors | {"embed_tokens.weight": target.embed_tokens.weight.clone()}
    prefixed = {f"model.{name}": value for name, value in tensors.items()}
    legacy = tensors | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    nested = {"model_type": "eagle", "model": heads.COMMON, "eagle_fc_bias": True, "vocab_size": heads.VOCAB}
    renamed = {name.replace("fc.", "eagle_linear."): value for name, value in tensors.items()}
    layouts = [
        (heads.COMMON, own),
        (heads.COMMON, prefixed),
        ({**heads.COMMON, "architectures": ["LlamaForCausalLMEagle"]}, legacy),
        (nested, tensors),
        (heads.COMMON, renamed),
    ]
    for i, (config, stored) in enumerate(layouts):
        assert torch.equal(drafts(heads.write(tmp_path / str(i), config, stored), target)[1], expected)


@torch.no_grad()
def test_without_its_bias_it_would_be_another_head(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle1_tensors(bias=True)
    full = drafts(heads.write(tmp_path / "a", heads.COMMON, tensors), target)[1]
    del tensors["fc.bias"]
    assert not torch.allclose(drafts(heads.write(tmp_path / "b", heads.COMMON, tensors), target)[1], full, atol=1e-2)


@torch.no_grad()
def test_a_head_with_norms_feeds_back_the_normed_stream(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle1_tensors()
    tensors["layers.0.input_layernorm.weight"] = torch.full((heads.HIDDEN,), 0.7)
    tensors["norm.weight"] = torch.linspace(0.5, 1.5, heads.HIDDEN)
    network = EagleDraft.load(heads.resolved("eagle", heads.write(tmp_path, heads.COMMON, tensors)), target)
    x = torch.randn(2, heads.HIDDEN)
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * tensors["norm.weight"]
    assert torch.allclose(network.feedback(x), normed, atol=1e-6)
    assert torch.allclose(network.logits(x), normed @ target.lm_head.weight.T, atol=1e-5)
    x = network.inputs(torch.tensor([TOKENS]), states()[None], torch.zeros(1, 5, dtype=torch.bool))
    network.layers[0].input_layernorm.weight.data.fill_(1.4)
    changed = network(x, torch.arange(5)[None], None, None)
    network.layers[0].input_layernorm.weight.data.fill_(0.7)
    assert not torch.allclose(changed, network(x, torch.arange(5)[None], None, None), atol=1e-3)


@torch.no_grad()
def test_a_head_that_repeats_the_state_drafts_the_target_token(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle1_tensors()
    tensors["fc.weight"] = torch.cat((torch.zeros(heads.HIDDEN, heads.HIDDEN), torch.eye(heads.HIDDEN)), 1)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"layers.0.{name}.weight"].zero_()
    ids, _ = drafts(heads.write(tmp_path, heads.COMMON, tensors), target, k=3)
    assert ids == [int((states()[-1] @ target.lm_head.weight.T).argmax())] * 3


@torch.no_grad()
def test_shares_the_target_s_values_and_not_a_copy(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle1_tensors() | {"embed_tokens.weight": target.embed_tokens.weight.clone()}
    network = EagleDraft.load(heads.resolved("eagle", heads.write(tmp_path, heads.COMMON, tensors)), target)
    assert network.embed_tokens.weight is target.embed_tokens.weight and network.lm_head is target.lm_head
    assert network.to_target is None and network.num_layers == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"enorm.weight": torch.ones(heads.HIDDEN)}, r"tensor enorm\.weight has no place"),
        ({"layers.0.mlp.up_proj.weight": None}, r"no tensor layers\.0\.mlp\.up_proj\.weight"),
        ({"layers.0.mlp.up_proj.weight": torch.ones(3, 4)}, r"up_proj\.weight has shape \[3, 4\].*needs \[48, 32\]"),
        ({"embed_tokens.weight": torch.ones(heads.VOCAB - 1, heads.HIDDEN)}, r"has 60 rows"),
    ],
)
def test_refuses_what_does_not_fit(tmp_path: Path, target: Any, change: dict[str, Any], says: str) -> None:
    tensors = {k: v for k, v in {**heads.eagle1_tensors(), **change}.items() if v is not None}
    config = heads.resolved("eagle", heads.write(tmp_path / "whole", heads.COMMON, heads.eagle1_tensors()))
    heads.write(tmp_path / "whole", heads.COMMON, tensors)
    with pytest.raises(DraftError, match=says):
        EagleDraft.load(config, target)


@pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
@pytest.mark.parametrize("normed", [False, True])
def test_runs_in_the_native_kernels(tmp_path: Path, target: Any, normed: bool) -> None:
    tensors = heads.eagle1_tensors(bias=True)
    if normed:
        tensors |= {f"{name}.weight": torch.ones(heads.HIDDEN) for name in ("norm", "layers.0.input_layernorm")}
    network = EagleDraft.load(heads.resolved("eagle", heads.write(tmp_path, heads.COMMON, tensors)), target)
    assert native_draft(network, SlotCache(1, 2, 64)) is not None
