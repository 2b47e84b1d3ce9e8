"""MTP modules: an independent one-layer model as the oracle, and the wiring that the records state per family."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from specdec_kernels.cpu import build

import specdec
from specdec.drafts.errors import DraftError
from specdec.drafts.mtp import MTPDraft
from specdec.drafts.native.check import native_draft
from specdec.model.handle import TargetHandle
from specdec.model.kv_cache import SlotCache

FAMILIES = ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5_text", "mimo")
TOKENS, POSITIONS = torch.tensor([[5, 9, 3, 40, 17, 8, 22]]), torch.arange(7)[None]


def handle(target: Any) -> TargetHandle:
    model = target.model
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    return TargetHandle(model, embed, head, 61, 32, torch.float32, torch.device("cpu"), 160)


def resolved(target: Any, k: int = 3, **draft: Any) -> Any:
    block = {"method": "mtp", "num_speculative_tokens": k, **draft}
    return specdec.resolve({"target": {"model": str(target.path)}, "speculative": block}).unwrap()


def draft_of(target: Any, k: int = 3) -> MTPDraft:
    return MTPDraft.load(resolved(target, k), handle(target))


def states_of(target: Any) -> torch.Tensor:
    """The target's states after its final norm [1, 7, H]."""
    with torch.inference_mode():
        return target.model.base_model(TOKENS).last_hidden_state


def outputs(draft: MTPDraft, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """What leaves the layer for pairs of tokens and features at positions 0, 1, ..."""
    with torch.inference_mode():
        positions = torch.arange(tokens.shape[1])[None]
        return draft(draft.inputs(tokens, features, positions == 0), positions, None, None)


def one_layer_model(target: Any, directory: Path, module: int = 0) -> Any:
    """The module's layer and norm as a language model of one layer, stored and loaded by transformers alone."""
    from transformers import AutoModelForCausalLM

    prefix = f"model.layers.{0}."
    block = {prefix + name: tensor for name, tensor in target.layer(module).items()}
    ends = {
        n: t for n, t in load_file(target.path / "model.safetensors").items() if "embed_tokens" in n or "lm_head" in n
    }
    ends = {n: t for n, t in ends.items() if n in ("model.embed_tokens.weight", "lm_head.weight")}
    directory.mkdir()
    save_file(block | ends | {"model.norm.weight": target.stored("norm", module)}, directory / "model.safetensors")
    config = json.loads((target.path / "config.json").read_text())
    alike = {"layer_types": ["full_attention"], "mlp_layer_types": ["sparse"], "first_k_dense_replace": 0}
    changed = {"num_hidden_layers": 1, **{k: v for k, v in alike.items() if k in config}}
    (directory / "config.json").write_text(json.dumps(config | changed))
    model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_module_is_a_one_layer_model_behind_its_projection(mtp_target, tmp_path, family):
    target = mtp_target(family)
    draft, oracle, states = draft_of(target), one_layer_model(target, tmp_path / "one"), states_of(target)
    tokens, features = TOKENS[:, 1:], states[:, :-1]
    eps = target.model.config.rms_norm_eps
    offset = 1.0 if family.startswith("qwen3") else 0.0  # these norms multiply by 1 + weight
    embeds = target.model.get_input_embeddings()(tokens).clone()
    if draft.zero_first:
        embeds[:, 0] = 0
    pair = [
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (offset + target.stored(part))
        for x, part in ((embeds, "embed_norm"), (features, "hidden_norm"))
    ]
    if family == "mimo":
        pair.reverse()
    with torch.inference_mode():
        x = torch.cat(pair, dim=-1) @ target.stored("input_proj").T
        expected = oracle(inputs_embeds=x, position_ids=POSITIONS[:, :-1], output_hidden_states=True)
    hidden = outputs(draft, tokens, features)
    torch.testing.assert_close(draft.logits(hidden), expected.logits, atol=2e-5, rtol=1e-4)
    if draft.feedback_normed:
        torch.testing.assert_close(draft.feedback(hidden), expected.hidden_states[-1], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "hidden_first", "zero_first", "fed_back"),
    [
        ("deepseek_v3", False, True, "after"),
        ("glm4_moe", False, True, "before"),
        ("qwen3_next", False, False, "after"),
        ("mimo", True, True, "after"),
    ],
)
def test_the_record_states_how_a_family_is_wired(mtp_target, family, hidden_first, zero_first, fed_back):
    draft, states = draft_of(mtp_target(family)), states_of(mtp_target(family))
    assert (draft.hidden_first, draft.zero_first) == (hidden_first, zero_first)
    hidden = outputs(draft, TOKENS[:, 1:], states[:, :-1])
    fed = hidden if fed_back == "before" else draft.mtp[0].norm(hidden)
    torch.testing.assert_close(draft.feedback(hidden), fed)
    assert not torch.allclose(hidden, draft.mtp[0].norm(hidden), atol=1e-2)
    other = TOKENS[:, 1:].clone()
    other[0, 0] = 50
    moved = (outputs(draft, other, states[:, :-1]) - hidden).abs().amax(dim=-1)[0]
    assert (moved[0] == 0) == zero_first
    assert (moved[-1] == 0) == zero_first


def test_the_input_order_matters_and_is_a_swap_of_halves(mtp_target):
    draft, states = draft_of(mtp_target("mimo")), states_of(mtp_target("mimo"))
    hidden = outputs(draft, TOKENS[:, 1:], states[:, :-1])
    draft.hidden_first = False
    assert not torch.allclose(outputs(draft, TOKENS[:, 1:], states[:, :-1]), hidden, atol=1e-2)
    weight = draft.mtp[0].input_proj.weight
    weight.copy_(torch.cat(weight.chunk(2, dim=1)[::-1], dim=1))
    torch.testing.assert_close(outputs(draft, TOKENS[:, 1:], states[:, :-1]), hidden)


def test_a_module_that_passes_the_state_on_drafts_what_the_state_says(mtp_target):
    target = mtp_target("deepseek_v3")
    draft, states = draft_of(target), states_of(target)
    module = draft.mtp[0]
    module.input_proj.weight.copy_(torch.cat([torch.zeros(32, 32), torch.eye(32)], dim=1))
    for name, weight in module.layer.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")):
            weight.zero_()
    hidden = outputs(draft, TOKENS[:, 1:], states[:, :-1])
    expected = draft.shared["head"](module.norm(module.hidden_norm(states[:, :-1])))
    torch.testing.assert_close(draft.logits(hidden), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_5_text"])
def test_cached_keys_and_values_change_nothing(mtp_target, family):
    from transformers import DynamicCache

    draft, states = draft_of(mtp_target(family)), states_of(mtp_target(family))
    tokens, features, positions = TOKENS[:, 1:], states[:, :-1], POSITIONS[:, :-1]
    expected, cache, seen = outputs(draft, tokens, features), DynamicCache(), []
    for first, last in ((0, 4), (4, 5), (5, 6)):
        part = slice(first, last)
        mask = positions[:, None, part, None] >= positions[:, None, None, :last]
        with torch.inference_mode():
            x = draft.inputs(tokens[:, part], features[:, part], positions[:, part] == 0)
            seen.append(draft(x, positions[:, part], mask, cache))
    torch.testing.assert_close(torch.cat(seen, dim=1), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3"])
def test_first_drafts_are_those_of_transformers(mtp_target, monkeypatch, family):
    """``generate(use_mtp=True)`` never zeroes the first pair, finds the layers by a hard-coded number, and counts
    positions from the token's instead of the state's, which rotary attention over keys of its own cannot tell."""
    from transformers import AutoModelForCausalLM
    from transformers.generation.candidate_generator import MTPCandidateGenerator

    target = mtp_target(family)
    model = AutoModelForCausalLM.from_pretrained(target.path).eval()
    model._keys_to_ignore_on_load_unexpected = [r"model\.layers\.2\..*"]
    drafted: list[tuple[list[int], int]] = []
    original = MTPCandidateGenerator.get_candidates

    def spy(self, input_ids, *args, **kwargs):
        candidates, logits = original(self, input_ids, *args, **kwargs)
        if logits is not None:
            drafted.append((input_ids[0].tolist(), int(candidates[0, -1])))
        return candidates, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", spy)
    prompt = torch.tensor([[5, 9, 3, 40]])
    text = model.generate(prompt, max_new_tokens=12, do_sample=False, use_mtp=True)
    assert text.tolist() == model.generate(prompt, max_new_tokens=12, do_sample=False).tolist()
    draft = draft_of(target)
    draft.zero_first = False
    assert len(drafted) >= 6
    for known, theirs in drafted:
        tokens = torch.tensor([known])
        with torch.inference_mode():
            states = target.model.base_model(tokens[:, :-1]).last_hidden_state
            ours = draft.logits(outputs(draft, tokens[:, 1:], states)[0, -1:]).argmax()
        assert int(ours) == theirs


def copied(target: Any, directory: Path, change: Any) -> Path:
    """The checkpoint with its tensors changed."""
    shutil.copytree(target.path, directory)
    tensors = load_file(directory / "model.safetensors")
    save_file(change(tensors), directory / "model.safetensors", {"format": "pt"})
    return directory


def test_modules_in_the_speculators_format_are_the_same(mtp_target, tmp_path):
    target = mtp_target("qwen3_next")
    renamed = {
        "mtp.fc": "mtp_layers.0.input_proj",
        "mtp.norm": "mtp_layers.0.final_layernorm",
        "mtp.pre_fc_norm_hidden": "mtp_layers.0.hidden_layernorm",
        "mtp.pre_fc_norm_embedding": "mtp_layers.0.token_layernorm",
        "mtp.layers.0": "mtp_layers.0",
    }
    tensors = {}
    for name, tensor in target.tensors.items():
        old = next(old for old in renamed if name.startswith(old + "."))
        tensors[renamed[old] + name.removeprefix(old)] = tensor
    # this format stores the experts of a layer in two tensors
    stem = "mtp_layers.0.mlp.experts."
    single = {n: tensors.pop(n) for n in list(tensors) if n.startswith(stem)}
    parts = {p: torch.stack([single[f"{stem}{i}.{p}_proj.weight"] for i in range(4)]) for p in ("gate", "up", "down")}
    tensors |= {stem + "gate_up_proj": torch.cat([parts["gate"], parts["up"]], 1), stem + "down_proj": parts["down"]}
    tensors |= {n: t for n, t in load_file(target.path / "model.safetensors").items() if "embed_tokens" in n}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    inner = json.loads((target.path / "config.json").read_text())
    outer = {"speculators_model_type": "mtp", "transformer_layer_config": inner, "architectures": ["MTPSpeculator"]}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    separate = MTPDraft.load(resolved(target, model=str(tmp_path)), handle(target))
    for name, weight in draft_of(target).mtp.state_dict().items():
        torch.testing.assert_close(separate.mtp.state_dict()[name], weight, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: {n: x for n, x in t.items() if "2.hnorm" not in n}, "hidden_norm.weight"),
        (lambda t: {n: x for n, x in t.items() if "2.mlp.experts.3." not in n}, "3 experts"),
        (lambda t: t | {"model.layers.2.eh_proj.weight_scale_inv": torch.ones(1)}, "weight_scale_inv"),
        (lambda t: t | {"model.layers.2.eh_proj.weight": torch.ones(32, 32)}, r"\[32, 32\]"),
        (lambda t: t | {"model.layers.2.eh_proj.weight": torch.ones(32, 64).to(torch.float8_e4m3fn)}, "F8_E4M3"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(mtp_target, tmp_path, change, says):
    target = mtp_target("glm4_moe")
    path = copied(target, tmp_path / "changed", change)
    config = specdec.resolve({"target": {"model": str(path)}, "speculative": {"method": "mtp"}}).unwrap()
    with pytest.raises(DraftError, match=says):
        MTPDraft.load(config, handle(target))


def test_a_family_without_a_record_is_refused(mtp_target):
    target = mtp_target("mimo")
    config = specdec.resolve(
        {"target": {"model": str(target.path)}, "speculative": {"method": "mtp"}},
        target_config=json.loads((target.path / "config.json").read_text())
        | {"model_type": "exaone_moe", "architectures": ["ExaoneMoeForCausalLM"]},
    ).unwrap()
    with pytest.raises(DraftError, match=r"exaone_moe.*mtp_input_order"):
        MTPDraft.load(config, handle(target))


@pytest.mark.skipif(not build.available(), reason="the kernels need a C++ compiler")
@pytest.mark.parametrize("family", FAMILIES)
def test_plain_decoder_layers_run_natively_and_others_as_they_are(mtp_target, family):
    draft = draft_of(mtp_target(family))
    native = native_draft(draft, SlotCache(1, 2, 40))
    assert (native is not None) == (family == "mimo")  # the others have experts, latent or gated attention
