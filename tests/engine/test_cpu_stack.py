"""All layers in one call: the same logits as the model, whatever shares the forward, and refused where the model does more."""

from __future__ import annotations

import pytest
import torch
import transformers
from specdec_kernels.cpu import build
from specdec_kernels.cpu.arena import Arena
from transformers import AutoModelForCausalLM

from specdec.model.accelerate import accelerate, native_stack
from specdec.model.batch import Batch
from specdec.model.capture import HiddenStateCapture
from specdec.model.kv_cache import SlotCache
from specdec.model.target import Target, prepare_target

VOCAB, CAPACITY = 97, 120
SMALL = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128,
}  # fmt: skip
SLIDING = {"sliding_window": 12, "use_sliding_window": True, "max_window_layers": 1}


def make(name: str, dtype: torch.dtype = torch.float32, **changes) -> Target:
    torch.manual_seed(0)
    config = getattr(transformers, name)(**(SMALL | changes))
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    target = prepare_target(model, device="cpu")
    accelerate(target.model)
    return target


needs_compiler = pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")


def batch(target: Target, cache: SlotCache, rows: dict[int, tuple[int, list[int]]], drafts: int | None = None) -> Batch:
    """``rows``: cache row -> (first position, tokens); logits of all tokens, or of ``drafts`` + 1."""
    tokens = [t for _, t in rows.values()]
    num = [len(t) - 1 if drafts is None else drafts for t in tokens]
    starts = [s for s, _ in rows.values()]
    return Batch([], tokens, starts, list(rows), num, [True] * len(rows), cache, target.layout, target.dtype)


def cache_of(target: Target) -> SlotCache:
    return SlotCache(target.layout.num_layers, 4, CAPACITY - 1)


def text(seed: int, count: int) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@needs_compiler
@pytest.mark.parametrize("head_dim", [16, 32, 48])
@pytest.mark.parametrize(
    ("name", "changes"),
    [("LlamaConfig", {}), ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}), ("Qwen2Config", {}), ("Qwen3Config", {}),
     ("MistralConfig", {"sliding_window": 12}), ("Qwen2Config", SLIDING), ("Qwen3Config", SLIDING)],
)  # fmt: skip
@torch.inference_mode()
def test_logits_equal_the_models(name, changes, head_dim):
    target = make(name, **changes, head_dim=head_dim, vocab_size=101)  # a vocabulary that is no multiple of 16
    stack = native_stack(target)
    assert stack is not None
    ours, theirs = cache_of(target), cache_of(target)
    steps = [
        {0: (0, text(1, 30)), 2: (0, text(2, 7))},
        {0: (30, text(3, 1)), 2: (7, text(4, 6))},
        {2: (13, text(5, 9))},
    ]
    for rows in steps:
        native_logits = stack(batch(target, ours, rows))[0]
        expected = target.padded_logits(batch(target, theirs, rows, drafts=None))
        torch.testing.assert_close(native_logits, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("changes", [{}, {"sliding_window": 12}])
@torch.inference_mode()
def test_a_token_does_not_depend_on_what_shares_its_forward(dtype, changes):
    target = make("MistralConfig" if changes else "LlamaConfig", dtype, **changes)
    stack = native_stack(target)
    assert stack is not None
    tokens, others = text(1, 90), text(2, 90)
    alone = cache_of(target)
    expected = torch.cat([stack(batch(target, alone, {1: (i, [t])}))[0] for i, t in enumerate(tokens)])
    for widths in ((90,), (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 15), (70, 20)):
        cache, at, got = cache_of(target), 0, []
        for width in widths:
            rows = {0: (0, others[: 1 + at % 11]), 1: (at, tokens[at : at + width]), 3: (2, others[:width])}
            got.append(stack(batch(target, cache, rows))[0].split([len(t) for _, t in rows.values()])[1])
            at += width
        assert torch.equal(torch.cat(got), expected)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_hidden_states_are_those_that_hooks_see(dtype):
    target = make("Qwen3Config", dtype)
    rows = {0: (0, text(1, 6)), 1: (0, text(2, 6))}
    hooks = HiddenStateCapture(target.model, True, (2, 0, 3))
    target.padded_logits(batch(target, cache_of(target), rows))
    last, aux = (states.flatten(0, 1) for states in hooks.take())
    hooks.remove()
    capture = HiddenStateCapture(target.model, True, (2, 0, 3))
    target.logits(batch(target, cache_of(target), rows), capture)
    tolerance = {"rtol": 0, "atol": 1e-4 if dtype is torch.float32 else 0.06 * float(aux.abs().max())}
    ours = capture.take()
    assert ours[0].shape == (12, 64) and ours[1].shape == (12, 192)
    torch.testing.assert_close(ours[0], last, **tolerance)
    torch.testing.assert_close(ours[1], aux, **tolerance)


@needs_compiler
@torch.inference_mode()
def test_a_row_with_nan_leaves_its_neighbours_alone():
    target = make("LlamaConfig")
    target.model.get_input_embeddings().weight[5] = float("nan")
    accelerate(target.model)
    stack = native_stack(target)
    cache = cache_of(target)
    stack(batch(target, cache, {0: (0, [5] * 20), 1: (0, [1] * 4)}))  # fills the slots with NaN
    good = stack(batch(target, cache, {0: (0, [1, 2, 3]), 1: (4, [2, 3, 4])}))[0]
    assert good.isfinite().all()
    mixed = stack(batch(target, cache, {0: (3, [4, 5, 6])}))[0]
    assert mixed[0].isfinite().all() and mixed[1:].isnan().all()


@pytest.mark.parametrize(
    ("name", "changes"),
    [("GraniteConfig", {"logits_scaling": 2.0}), ("Gemma3TextConfig", {}), ("CohereConfig", {}), ("Gemma2Config", {}),
     ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}, "max_position_embeddings": 16})],
)  # fmt: skip
@torch.inference_mode()
def test_models_that_do_more_run_as_they_are(name, changes):
    target = make(name, **changes)
    stack = native_stack(target)
    cache = cache_of(target)
    rows = {0: (0, text(1, 9))}
    assert stack is None or not stack.runs(batch(target, cache, rows))
    assert target.logits(batch(target, cache, rows)).shape == (9, VOCAB)


@needs_compiler
@torch.inference_mode()
def test_glue_between_the_layers_is_noticed():
    for spoil in ("logits", "embedding", "rotary"):
        target = make("LlamaConfig")
        model = target.model
        if spoil == "logits":
            forward = model.forward
            model.forward = lambda *a, forward=forward, **k: _scaled(forward(*a, **k))
        elif spoil == "embedding":
            embed = model.model.embed_tokens
            embed.register_forward_hook(lambda _, args, out: out)  # harmless: still accepted below
            model.model.layers[0].register_forward_pre_hook(lambda _, args: (args[0] * 1.01,))
        else:
            table = model.model.rotary_emb
            model.model.layers[1].register_forward_pre_hook(
                lambda _, args, kwargs, table=table: (args, kwargs | {"position_embeddings": tuple(2 * t for t in kwargs["position_embeddings"])}),
                with_kwargs=True,
            )  # fmt: skip
        assert native_stack(target) is None, spoil


def _scaled(output):
    output.logits = output.logits * 1.001
    return output


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_512_bit_vectors_compute_the_same(dtype, monkeypatch):
    """With vectors that the compiler emulates where the CPU has none as wide."""
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DLANES=16", "-Wno-psabi"))
    build.load.cache_clear()
    try:
        target = make("MistralConfig", dtype, sliding_window=12)
        stack = native_stack(target)
        assert stack is not None
        tokens, cache, once = text(1, 40), cache_of(target), cache_of(target)
        whole = stack(batch(target, once, {2: (0, tokens)}))[0]
        parts = [stack(batch(target, cache, {0: (at, tokens[at : at + 5])}))[0] for at in range(0, 40, 5)]
        assert torch.equal(torch.cat(parts), whole)
    finally:
        build.load.cache_clear()


def test_an_arena_hands_out_aligned_memory_and_refuses_more_than_it_has():
    arena = Arena(Arena.room_for([100, 64]))
    first, second = arena.take((10, 5), torch.bfloat16), arena.take((16,), torch.float32)
    assert first.data_ptr() % 64 == second.data_ptr() % 64 == 0
    first.fill_(1)
    second.fill_(2)
    assert float(first.float().sum()) == 50
    with pytest.raises(ValueError, match="the arena holds"):
        arena.take((4096,), torch.float32)
