"""EAGLE-3 heads: the formulas under every flag, the layouts of all producers, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import eagle_heads as heads
import pytest
import torch
from specdec_kernels.cpu import build

from specdec.config.findings.diagnostics import ConfigError
from specdec.drafts.eagle3 import Eagle3Draft
from specdec.drafts.errors import DraftError
from specdec.drafts.native.check import native_draft
from specdec.model.kv_cache import SlotCache
from specdec.model.target import prepare_target

TOKENS = [5, 17, 3, 44, 8]
HEAD = {**heads.COMMON, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": heads.REDUCED}


@pytest.fixture(scope="module")
def target() -> Any:
    return prepare_target(heads.target_model(), device="cpu").handle(128)


def states(taps: int = 3) -> torch.Tensor:
    return torch.randn(len(TOKENS), taps * heads.HIDDEN, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def drafts(path: str, target: Any, k: int = 4, **options: Any) -> tuple[list[int], torch.Tensor]:
    network = Eagle3Draft.load(heads.resolved("eagle3", path, **options), target)
    return heads.chain(network, TOKENS, states(), k)


@pytest.mark.parametrize(
    ("flags", "layers"),
    [({}, 1), ({}, 3), ({"norm_before_residual": True}, 1), ({"norm_output": True}, 2)],
)
@torch.no_grad()
def test_equals_the_formulas(tmp_path: Path, target: Any, flags: dict[str, bool], layers: int) -> None:
    tensors = heads.eagle3_tensors(layers=layers)
    path = heads.write(tmp_path, {**HEAD, "num_hidden_layers": layers, **flags}, heads.midlayer(tensors))
    ours = drafts(path, target)
    theirs = heads.reference(
        tensors, target.embed_tokens.weight, tensors["lm_head.weight"], TOKENS, states(), 4, **flags
    )
    assert ours[0] == theirs[0] and torch.allclose(ours[1], theirs[1], atol=2e-3)
    members = torch.arange(heads.REDUCED) + tensors["d2t"]
    assert set(ours[0]) <= set(members.tolist())


@torch.no_grad()
def test_layouts_of_all_producers_give_equal_logits(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle3_tensors()
    mid = heads.midlayer(tensors)
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}
    nvidia = {
        **ids,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
        "next_layer_regular": True,
        "parallel_draft_step": 1,
        "parallel_draft_heads_num_layers": 1,
    }
    layer = {k: v for k, v in heads.COMMON.items() if k != "architectures"}
    speculators = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3DraftModel"],
        "transformer_layer_config": layer,
        "draft_vocab_size": heads.REDUCED,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "tiny"}},
    }
    layouts = {
        "safeailab": ({**HEAD, "architectures": ["LlamaForCausalLM"]}, mid),
        "specforge": ({**HEAD, "eagle_config": ids}, mid),
        "angelslim": (
            {
                **HEAD,
                "architectures": ["Eagle3LlamaForCausalLM"],
                "target_model_type": "llama",
                "tie_word_embeddings": True,
            },
            mid,
        ),
        "nvidia": ({**HEAD, "eagle_config": nvidia}, {k: v for k, v in tensors.items() if k != "t2d"}),
        "speculators": (speculators, tensors),
        "own embedding": (HEAD, mid | {"embed_tokens.weight": target.embed_tokens.weight.clone()}),
        "prefixed": (HEAD, {f"model.{name}": value for name, value in mid.items()}),
        "no head_dim": ({k: v for k, v in HEAD.items() if k != "head_dim"}, mid),
        "the target's layer count": ({**HEAD, "num_hidden_layers": 36}, mid),
    }
    given = {name: drafts(heads.write(tmp_path / name, *layout), target) for name, layout in layouts.items()}
    expected = given["safeailab"]
    for name, (ids_drafted, logits) in given.items():
        assert ids_drafted == expected[0] and torch.equal(logits, expected[1]), name


@pytest.mark.parametrize("place", ["top", "eagle_config", "tensors"])
@torch.no_grad()
def test_one_norm_before_fc(tmp_path: Path, target: Any, place: str) -> None:
    tensors = heads.eagle3_tensors()
    tensors["input_norm.weight"] = torch.linspace(0.5, 1.5, 3 * heads.HIDDEN)
    said = {"top": {"norm_before_fc": True}, "eagle_config": {"eagle_config": {"norm_before_fc": True}}, "tensors": {}}
    network = Eagle3Draft.load(
        heads.resolved("eagle3", heads.write(tmp_path, {**HEAD, **said[place]}, tensors)), target
    )
    x = states()
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * tensors["input_norm.weight"]
    assert torch.allclose(network.features(x), normed @ tensors["fc.weight"].T, atol=1e-5)


@torch.no_grad()
def test_one_norm_per_target_state(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle3_tensors()
    for i in range(3):
        tensors[f"fc_norm.{i}.weight"] = torch.full((heads.HIDDEN,), 1.0 + i)
    path = heads.write(tmp_path, {**HEAD, "fc_norm": True}, tensors)
    network = Eagle3Draft.load(heads.resolved("eagle3", path), target)
    parts = [
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * (1 + i) for i, x in enumerate(states().chunk(3, -1))
    ]
    assert torch.allclose(network.features(states()), torch.cat(parts, -1) @ tensors["fc.weight"].T, atol=1e-5)


@torch.no_grad()
def test_a_head_over_the_last_state(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle3_tensors()
    del tensors["fc.weight"]
    path = heads.write(tmp_path, {**HEAD, "eagle_config": {"use_aux_hidden_state": False}}, tensors)
    config = heads.resolved("eagle3", path)
    network = Eagle3Draft.load(config, target)
    assert not config.capabilities["uses_aux_hidden_states"]
    assert torch.equal(network.features(states(1)), states(1))


@torch.no_grad()
def test_a_target_of_another_width(tmp_path: Path) -> None:
    wide = prepare_target(heads.target_model(hidden_size=48), device="cpu").handle(128)
    tensors = heads.eagle3_tensors()
    tensors["fc.weight"] = torch.randn(heads.HIDDEN, 3 * 48)
    tensors["embed_tokens.weight"] = torch.randn(heads.VOCAB, heads.HIDDEN)
    path = heads.write(tmp_path / "draft", {**HEAD, "target_hidden_size": 48}, tensors)
    wide.model.save_pretrained(tmp_path / "target")
    network = Eagle3Draft.load(heads.resolved("eagle3", path, target=str(tmp_path / "target")), wide)
    assert network.features(torch.randn(2, 144)).shape == (2, heads.HIDDEN)


@torch.no_grad()
def test_the_rotation_is_the_draft_s_own(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle3_tensors()
    silent = {k: v for k, v in HEAD.items() if k != "rope_theta"}  # 10000, whatever the target says
    stated = {**HEAD, "rope_theta": 10000.0}
    logits = [
        drafts(heads.write(tmp_path / str(i), c, tensors), target)[1] for i, c in enumerate((silent, stated, HEAD))
    ]
    assert torch.equal(logits[0], logits[1]) and not torch.allclose(logits[0], logits[2], atol=1e-3)


@torch.no_grad()
def test_flags_change_the_head(tmp_path: Path, target: Any) -> None:
    """A wrong flag loads without a word, so the flags must reach the network."""
    tensors = heads.eagle3_tensors()
    changes = ({}, {"norm_before_residual": True}, {"norm_output": True}, {"hidden_act": "gelu"})
    logits = [
        drafts(heads.write(tmp_path / str(i), {**HEAD, **c}, tensors), target)[1][-1] for i, c in enumerate(changes)
    ]
    assert all(not torch.allclose(logits[0], other, atol=1e-3) for other in logits[1:])


@torch.no_grad()
def test_a_full_vocabulary_needs_no_map(tmp_path: Path, target: Any) -> None:
    tensors = heads.eagle3_tensors(reduced=False)
    config = {**HEAD, "draft_vocab_size": heads.VOCAB}
    network = Eagle3Draft.load(heads.resolved("eagle3", heads.write(tmp_path / "a", config, tensors)), target)
    tensors["d2t"] = torch.zeros(heads.VOCAB, dtype=torch.int64)  # as Vicuna heads store it
    same = Eagle3Draft.load(heads.resolved("eagle3", heads.write(tmp_path / "b", config, tensors)), target)
    assert network.to_target is None and same.to_target is None


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "no map": ({"d2t": None, "t2d": None}, "no tensor d2t"),
    "out of range": ({"d2t": torch.full((heads.REDUCED,), 50), "t2d": None}, r"gives id 73, outside the target's 61"),
    "absolute": ({"t2d": None}, "holds absolute ids|outside the target|target ids"),
    "short map": ({"d2t": torch.zeros(7, dtype=torch.int64)}, r"d2t has shape \[7\].* needs \[24\]"),
    "no hidden norm": ({"layers.0.hidden_norm.weight": None}, r"no tensor layers\.0\.hidden_norm\.weight"),
    "no last norm": ({"norm.weight": None}, r"no tensor norm\.weight"),
    "fc of two states": ({"fc.weight": torch.ones(32, 64)}, r"fc\.weight has shape \[32, 64\].* needs \[32, 96\]"),
    "too few heads": ({"layers.0.self_attn.q_proj.weight": torch.ones(24, 64)}, r"q_proj\.weight has shape \[24, 64\]"),
    "a tensor of another network": (
        {"parallel_draft_heads.0.weight": torch.ones(2)},
        "parallel_draft_heads.0.weight has no place",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_refuses_what_does_not_fit(tmp_path: Path, target: Any, change: str) -> None:
    """The weights may have changed since the configuration was made: the loader checks for itself."""
    whole = heads.eagle3_tensors()
    config = heads.resolved("eagle3", heads.write(tmp_path, HEAD, whole))
    changes, says = CHANGES[change]
    if change == "absolute":
        changes = {"d2t": whole["d2t"] + torch.arange(heads.REDUCED)}
    heads.write(tmp_path, HEAD, {k: v for k, v in {**whole, **changes}.items() if v is not None})
    with pytest.raises(DraftError, match=says) as raised:
        Eagle3Draft.load(config, target)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"head_dim": 8}, "checkpoint-config-vs-weights"),
        ({"num_attention_heads": 8}, "checkpoint-config-vs-weights"),
        ({"num_hidden_layers": 2}, "checkpoint-config-vs-weights"),
        ({"hidden_size": 64}, "checkpoint-config-vs-weights"),
        ({"draft_vocab_size": 32}, "checkpoint-config-vs-weights"),
        ({"vocab_size": 60}, "vocab-size-differs"),
        ({"eagle_config": {"use_input_layernorm_in_first_layer": False}}, "checkpoint-config-vs-weights"),
        ({"eagle_config": {"use_last_layernorm": False}}, "checkpoint-config-vs-weights"),
        ({"norm_before_fc": True}, "checkpoint-config-vs-weights"),
    ],
)
def test_a_config_that_lies_is_found_before_anything_loads(tmp_path: Path, lie: dict[str, Any], code: str) -> None:
    path = heads.write(tmp_path, {**HEAD, **lie}, heads.eagle3_tensors())
    with pytest.raises(ConfigError) as raised:
        heads.resolved("eagle3", path)
    errors = [d for d in raised.value.diagnostics if d.severity == "error"]
    assert code in {d.code for d in errors} and all(d.path.startswith(("draft.", "speculative.")) for d in errors)


def test_a_checkpoint_that_went_away(tmp_path: Path, target: Any) -> None:
    config = heads.resolved("eagle3", heads.write(tmp_path / "head", HEAD, heads.eagle3_tensors()))
    shutil.rmtree(tmp_path / "head")
    with pytest.raises(DraftError, match="does not exist"):
        Eagle3Draft.load(config, target)


@pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"norm_before_residual": True},
        {"norm_output": True, "num_hidden_layers": 2},
        {"norm_before_fc": True},
        {"fc_norm": True},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_runs_in_the_native_kernels(tmp_path: Path, flags: dict[str, Any], dtype: torch.dtype) -> None:
    target = prepare_target(heads.target_model().to(dtype), device="cpu").handle(128)
    tensors = heads.eagle3_tensors(layers=flags.get("num_hidden_layers", 1))
    if "norm_before_fc" in flags:
        tensors["input_norm.weight"] = torch.linspace(0.5, 1.5, 3 * heads.HIDDEN)
    if "fc_norm" in flags:
        tensors |= {f"fc_norm.{i}.weight": torch.full((heads.HIDDEN,), 1.0 + i) for i in range(3)}
    config = heads.resolved("eagle3", heads.write(tmp_path, {**HEAD, **flags}, tensors))
    network = Eagle3Draft.load(config, target)
    assert native_draft(network, SlotCache(network.num_layers, 2, 64)) is not None


def test_a_head_slides_where_layer_types_says_so(tmp_path: Path, target: Any) -> None:
    stated = {**HEAD, "num_hidden_layers": 2, "sliding_window": 4}
    tensors, sliding, full = heads.eagle3_tensors(layers=2), "sliding_attention", "full_attention"
    kinds: dict[str, list[str] | None] = {"silent": None, "all": [sliding] * 2, "mixed": [sliding, full]}
    paths = {n: heads.write(tmp_path / n, {**stated, "layer_types": kind}, tensors) for n, kind in kinds.items()}
    load = {name: heads.resolved("eagle3", path) for name, path in paths.items()}
    assert Eagle3Draft.load(load["silent"], target).window is None
    assert Eagle3Draft.load(load["all"], target).window == 4
    with pytest.raises(DraftError, match="sliding and full layers"):
        Eagle3Draft.load(load["mixed"], target)
