"""The decoder layer of draft networks against transformers' own layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from specdec.drafts.errors import DraftError
from specdec.drafts.layers import DecoderLayer, LayerFacts, RMSNorm, Rotary, causal_mask, rotate

FACTS = LayerFacts(
    hidden_size=24, input_size=24, intermediate_size=40, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-5
)
ROPE = {"hidden_size": 24, "num_attention_heads": 4, "head_dim": 8, "rope_theta": 5000.0, "rope_type": "default"}


def theirs(cls: Any, config_cls: Any, **extra: Any) -> tuple[Any, Any]:
    config = config_cls(
        hidden_size=24,
        intermediate_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=5000.0,
        attn_implementation="sdpa",
        **extra,
    )
    layer = cls(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer, config


@pytest.mark.parametrize(
    ("cls", "config_cls", "extra", "facts"),
    [
        (LlamaDecoderLayer, LlamaConfig, {}, {}),
        (
            LlamaDecoderLayer,
            LlamaConfig,
            {"attention_bias": True, "mlp_bias": True},
            {"qkv_bias": True, "output_bias": True, "mlp_bias": True},
        ),
        (Qwen3DecoderLayer, Qwen3Config, {}, {"qk_norm": True}),
    ],
)
def test_equals_the_layer_of_transformers(cls: Any, config_cls: Any, extra: Any, facts: Any) -> None:
    torch.manual_seed(0)
    layer, config = theirs(cls, config_cls, **extra)
    ours = DecoderLayer(replace(FACTS, **facts), 0)
    ours.load_state_dict(layer.state_dict(), strict=True)
    x, positions = torch.randn(2, 7, 24), torch.arange(3, 10)[None]
    rotation = LlamaRotaryEmbedding(config)(x, positions)
    mask = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    expected = layer(x, attention_mask=mask, position_embeddings=rotation)
    with torch.no_grad():
        assert torch.allclose(ours(x, Rotary(ROPE)(x, positions), None, None), expected, atol=1e-5)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ],
)
def test_rotates_as_the_draft_says(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(
        hidden_size=24, num_attention_heads=4, head_dim=8, rope_theta=5000.0, rope_parameters=dict(scaling)
    )
    x, positions = torch.zeros(1, 1, 8), torch.arange(40)[None]
    expected = LlamaRotaryEmbedding(config)(x, positions)
    legacy = {("type" if key == "rope_type" else key): value for key, value in scaling.items()}
    ours = Rotary({**ROPE, "rope_type": scaling["rope_type"], "rope_scaling": legacy})(x, positions)
    plain = Rotary(ROPE)(x, positions)
    assert torch.equal(ours[0], expected[0]) and torch.equal(ours[1], expected[1])
    assert not torch.equal(ours[0], plain[0])


@pytest.mark.parametrize("scaling", [{"rope_type": "spiral"}, {"rope_type": "yarn"}])
def test_refuses_an_unknown_rotation(scaling: dict[str, Any]) -> None:
    with pytest.raises(DraftError, match=scaling["rope_type"]):
        Rotary({**ROPE, "rope_type": scaling["rope_type"], "rope_scaling": scaling})


def test_interleaved_rotation_is_the_other_one_with_pairs_side_by_side() -> None:
    x, rotation = torch.randn(1, 4, 5, 8), Rotary(ROPE)(torch.zeros(1), torch.arange(5)[None])
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    assert torch.allclose(rotate(x, rotation)[..., order], rotate(x[..., order], rotation, interleaved=True))


def test_partial_rotation_leaves_the_rest() -> None:
    x, rotation = torch.randn(1, 4, 5, 12), Rotary(ROPE)(torch.zeros(1), torch.arange(5)[None])
    turned = rotate(x, rotation)
    assert torch.equal(turned[..., 8:], x[..., 8:]) and torch.equal(turned[..., :8], rotate(x[..., :8], rotation))


def test_norm_with_unit_offset() -> None:
    plain, offset = RMSNorm(6, 1e-6), RMSNorm(6, 1e-6, unit_offset=True)
    weight, x = torch.randn(6), torch.randn(3, 6)
    plain.weight.data, offset.weight.data = weight + 1, weight
    assert torch.allclose(plain(x), offset(x))


def test_window_and_missing_norm_and_wide_input() -> None:
    torch.manual_seed(1)
    layer = DecoderLayer(replace(FACTS, window=3, input_norm=False, input_size=48), 0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, wide = torch.randn(1, 8, 24), torch.randn(1, 8, 48)
    rotation = Rotary(ROPE)(x, torch.arange(8)[None])
    with torch.no_grad():
        before = layer(x, rotation, None, None, attends=wide)
        wide[:, 4] += 1.0
        after = layer(x, rotation, None, None, attends=wide)
    changed = (before - after).abs().amax(-1)[0] > 1e-4
    assert changed.tolist() == [False] * 4 + [True] * 3 + [False]  # rows 4 to 6 see position 4, row 7 no longer


def test_causal_mask_of_the_last_rows() -> None:
    assert causal_mask(1, 9, torch.device("cpu")) is None
    mask = causal_mask(2, 4, torch.device("cpu"), window=2)
    assert mask is not None and mask.int().tolist() == [[[[0, 1, 1, 0], [0, 0, 1, 1]]]]
