"""The accelerated model computes what the stock one does, row by row, and refuses layers it does not understand."""

from __future__ import annotations

import pytest
import torch
import transformers
from specdec_kernels.cpu import build
from specdec_kernels.cpu.build import NativeUnavailable
from specdec_kernels.cpu.native import NativeLinear, arena_for
from transformers import AutoModelForCausalLM, DynamicCache

from specdec.model import accelerate as module
from specdec.model.accelerate import accelerate, acceleration, restore

SMALL = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
}  # fmt: skip
WHOLE_LAYERS = ["LlamaConfig", "Qwen2Config", "Qwen3Config", "MistralConfig"]
LINEARS_ONLY = ["GraniteConfig", "Gemma3TextConfig", "Olmo2Config", "CohereConfig", "PhiConfig"]


def make(name: str, dtype: torch.dtype = torch.float32, **changes):
    torch.manual_seed(0)
    config = getattr(transformers, name)(**(SMALL | changes))
    if hasattr(config, "residual_multiplier"):
        config.residual_multiplier = 0.3
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    for parameter in model.parameters():  # large enough that every part of a layer matters
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


@torch.inference_mode()
def decode(model, ids: torch.Tensor, widths: tuple[int, ...]) -> list[torch.Tensor]:
    """Logits of consecutive forwards of these widths over one cache."""
    cache, at, logits = DynamicCache(config=model.config), 0, []
    for width in widths:
        logits.append(model(ids[:, at : at + width], past_key_values=cache, use_cache=True).logits)
        at += width
    return logits


@pytest.mark.parametrize("name", WHOLE_LAYERS + LINEARS_ONLY)
def test_float32_logits_equal_stock(name):
    model = make(name)
    ids = torch.randint(0, 97, (2, 24))
    stock = decode(model, ids, (9, 1, 4, 1, 2, 7))
    accelerate(model, max_batch=2)
    report = acceleration(model)
    for ours, theirs in zip(decode(model, ids, (9, 1, 4, 1, 2, 7)), stock, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))
    if build.available():
        assert report.layers == (3 if name in WHOLE_LAYERS else 0)
        assert report.linears >= 1
    else:
        assert report.layers == 0 and "compiler" in report.reason


def test_float32_greedy_tokens_equal_stock():
    model = make("LlamaConfig")
    ids = torch.randint(0, 97, (2, 10))
    arguments = {"max_new_tokens": 40, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    stock = model.generate(ids, **arguments)
    accelerate(model)
    assert torch.equal(model.generate(ids, **arguments), stock)


@pytest.mark.parametrize("name", ["LlamaConfig", "Qwen3Config"])
def test_bfloat16_logits_are_as_close_to_float32_as_stock(name):
    exact, model = make(name), make(name).to(torch.bfloat16)
    exact.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
    ids = torch.randint(0, 97, (1, 20))
    truth = torch.cat(decode(exact, ids, (12, 8)), dim=1)
    stock = torch.cat(decode(model, ids, (12, 8)), dim=1)
    accelerate(model)
    ours = torch.cat(decode(model, ids, (12, 8)), dim=1)
    assert (ours - truth).pow(2).mean() <= 1.2 * (stock - truth).pow(2).mean()


@pytest.mark.parametrize("share", [0.0, module.PACKED_SHARE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_the_width_or_the_batch(dtype, share, monkeypatch):
    monkeypatch.setattr(module, "PACKED_SHARE", share)
    model = make("LlamaConfig", dtype)
    accelerate(model)
    if not build.available():
        return
    assert (acceleration(model).packed_bytes > 0) == (share > 0)
    ids = torch.randint(0, 97, (3, 43))
    together = torch.cat(decode(model, ids, (15, 28)), dim=1)[:, 15:]
    alone = torch.cat(decode(model, ids[1:2], (15, 1, 1, 3, 2, 4, 5, 6, 1, 5)), dim=1)[:, 15:]
    assert torch.equal(together[1:2], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_repacked_weights_give_the_same_products(dtype, bias):
    if not build.available():
        return
    torch.manual_seed(0)
    for n, k in ((1, 16), (17, 48), (97, 64), (200, 80)):  # panels of 16 outputs: whole, partial, several at once
        linear = torch.nn.Linear(k, n, bias=bias).to(dtype)
        x = torch.randn(70, k).to(dtype)
        exact = x.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0.0)
        native_linear = NativeLinear(linear, arena_for([linear]))
        whole = native_linear(x)
        torch.testing.assert_close(whole.double(), exact, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
        for rows in range(1, 14):
            assert torch.equal(native_linear(x[:rows]), whole[:rows])


def test_a_model_that_fills_the_memory_is_not_repacked(monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    model = make("LlamaConfig")
    accelerate(model)
    assert acceleration(model).packed_bytes == 0
    monkeypatch.setattr(module, "free_bytes", lambda device: None)
    accelerate(model)
    assert acceleration(model).packed_bytes == 0


@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_explicit_masks_with_rows_of_different_length(kind):
    model = make("LlamaConfig")
    if kind == "additive":
        model.set_attn_implementation("eager")
    ids = torch.randint(0, 97, (2, 6))
    lengths = torch.tensor([6, 3])
    visible = torch.ones(6, 6, dtype=torch.bool).tril() & (torch.arange(6) < lengths[:, None])[:, None, None, :]
    mask = (
        visible if kind == "bool" else torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    )
    positions = torch.arange(6).expand(2, -1)
    with torch.inference_mode():
        stock = model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        accelerate(model)
        ours = model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(ours[0], stock[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[1, :3], stock[1, :3], rtol=1e-4, atol=1e-4)


def test_a_masked_slot_may_hold_nan():
    model = make("LlamaConfig")
    accelerate(model)
    if not build.available():
        return
    ids = torch.randint(0, 97, (1, 8))
    with torch.inference_mode():
        cache = DynamicCache(config=model.config)
        model(ids, past_key_values=cache)
        for layer in cache.layers:
            layer.keys[:, :, 5] = float("nan")
            layer.values[:, :, 5] = float("nan")
        mask = (torch.arange(9) != 5)[None, None, None]
        logits = model(ids[:, :1], past_key_values=cache, attention_mask=mask, position_ids=torch.tensor([[8]])).logits
    assert torch.isfinite(logits).all()


def test_hooks_on_layer_inputs_and_hidden_states_still_work():
    model = make("LlamaConfig")
    ids = torch.randint(0, 97, (1, 7))
    seen: list[torch.Tensor] = []
    handle = model.model.layers[2].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.inference_mode():
        stock = model(ids, output_hidden_states=True).hidden_states
        accelerate(model)
        ours = model(ids, output_hidden_states=True).hidden_states
    handle.remove()
    torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(ours, stock, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_turning_it_off_restores_the_model():
    model = make("LlamaConfig")
    ids = torch.randint(0, 97, (1, 7))
    stock = decode(model, ids, (7,))[0]
    accelerate(model)
    accelerate(model, mode="off")
    assert acceleration(model).reason == "turned off"
    assert not any("forward" in vars(m) for m in model.modules())
    assert torch.equal(decode(model, ids, (7,))[0], stock)
    restore(model)
    assert acceleration(model) is None


def test_training_still_has_gradients():
    model = make("LlamaConfig")
    accelerate(model)
    model(torch.randint(0, 97, (1, 5))).logits.sum().backward()
    assert all(p.grad is not None for p in model.model.layers[0].parameters())


def test_without_a_compiler_the_model_stays_stock(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    build.load.cache_clear()
    try:
        model = make("LlamaConfig")
        accelerate(model)
        assert "no C++ compiler" in acceleration(model).reason
        assert not any("forward" in vars(m) for m in model.modules())
        assert "no C++ compiler" in caplog.text
    finally:
        build.load.cache_clear()


def test_a_broken_compiler_is_named(monkeypatch, tmp_path):
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\necho 'cxx: something is missing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    with pytest.raises(NativeUnavailable, match="something is missing"):
        build.build()


def test_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="auto, off"):
        accelerate(make("LlamaConfig"), mode="fast")
