"""The Gemma 4 assistant against transformers' own class, whose faults in 5.23 are written down where they are mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import specdec
from specdec.drafts.errors import DraftError
from specdec.drafts.gemma4 import Gemma4Draft
from specdec.model.handle import TargetHandle

VOCAB, KINDS = 64, ["sliding_attention", "full_attention"]
TOKENS = torch.tensor([[5, 9, 3, 40, 17, 8, 22, 31, 2]])


def handle(model: Any) -> TargetHandle:
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    return TargetHandle(model, embed, head, VOCAB, 32, torch.float32, torch.device("cpu"), 160)


def resolved(target: Any, assistant: Any, k: int = 3) -> Any:
    block = {"model": str(assistant.path), "num_speculative_tokens": k}
    return specdec.resolve({"target": {"model": str(target.path)}, "speculative": block}).unwrap()


@pytest.fixture(scope="module")
def mended() -> Iterator[None]:
    """transformers 5.23 refuses layers that share keys when none of them makes any, which is every assistant's case."""
    from transformers import Gemma4TextConfig

    modes = Gemma4TextConfig.kv_sharing_modes

    def reuse_only(config: Any) -> list[str | None]:
        alone = config.num_kv_shared_layers == config.num_hidden_layers
        return ["reuse"] * config.num_hidden_layers if alone else modes.fget(config)

    Gemma4TextConfig.kv_sharing_modes = property(reuse_only)
    yield
    Gemma4TextConfig.kv_sharing_modes = modes


@pytest.fixture(scope="module", params=[False, True], ids=["full_head", "ordered_head"])
def theirs(request, gemma4_assistant, mended) -> tuple[Any, Any]:
    """Our record of an assistant, and transformers' module of it."""
    from transformers import Gemma4AssistantForCausalLM

    assistant = gemma4_assistant(request.param)
    return assistant, Gemma4AssistantForCausalLM.from_pretrained(assistant.path).eval()


def held_by(model: Any, tokens: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
    """Keys and values of the layers that an assistant reads, and the states after the final norm."""
    with torch.inference_mode():
        out = model(tokens, return_shared_kv_states=True, output_hidden_states=True)
    return dict(out.shared_kv_states), out.hidden_states[-1]


def masks(length: int, window: int) -> dict[str, torch.Tensor]:
    keys = torch.arange(length)
    full = torch.ones(1, 1, 1, length, dtype=torch.bool)
    return {"full_attention": full, "sliding_attention": full & (length - 1 - keys < window)}


def test_the_layers_read_are_the_last_with_keys_of_their_own(gemma4_target, gemma4_assistant):
    for shared, layers in ((0, [2, 3]), (2, [0, 1])):
        config = resolved(gemma4_target(shared), gemma4_assistant(False))
        assert (config.method, list(config.wiring["target_kv_layers"])) == ("gemma4", layers)


def test_one_step_is_that_of_transformers(gemma4_target, theirs):
    """Its sliding layers see ``window + 1`` keys of the target (its mask counts the distance inclusively, 5.23), where
    the target's own layers and other engines see ``window``; so the comparison is made with one key more."""
    assistant, oracle = theirs
    target = gemma4_target(2)
    draft = Gemma4Draft.load(resolved(target, assistant), handle(target.model))
    held, states = held_by(target.model, TOKENS)
    state, token, at = states[:, -1:], torch.tensor([[7]]), torch.tensor([[TOKENS.shape[1] - 1]])
    for _ in range(3):  # position, keys and values stay as they are while tokens are drafted
        with torch.inference_mode():
            pair = torch.cat([target.model.get_input_embeddings()(token), state], dim=-1)
            expected = oracle(inputs_embeds=pair, position_ids=at, shared_kv_states=held, use_cache=False)
            x = draft.inputs(token, state, torch.zeros(1, 1, dtype=torch.bool))
            hidden = draft(x, at, masks(TOKENS.shape[1], 7), held)[0]
            logits = draft.logits(hidden)
        scored = logits.isfinite()
        torch.testing.assert_close(logits[scored], expected.logits[0][scored], atol=1e-5, rtol=1e-4)
        # tokens of other centroids: impossible here, one below the least of the scored ones there
        assert (expected.logits[0][~scored] < logits[scored].min()).all()
        torch.testing.assert_close(draft.feedback(hidden), expected.last_hidden_state[0], atol=1e-5, rtol=1e-4)
        token, state = logits.argmax(-1)[None], draft.feedback(hidden)[None]


def test_the_ordered_head_is_the_full_head_over_its_candidates(gemma4_target, gemma4_assistant):
    draft = Gemma4Draft.load(resolved(gemma4_target(2), gemma4_assistant(True)), handle(gemma4_target(2).model))
    hidden = torch.randn(5, 16)
    logits, full = draft.logits(hidden), draft.lm_head(draft.norm(hidden))
    scored = logits.isfinite()
    assert scored.sum(-1).tolist() == [16] * 5  # 2 of 8 centroids with 8 tokens each
    torch.testing.assert_close(logits[scored], full[scored])


@pytest.mark.parametrize("kind", KINDS)
def test_both_kinds_of_layers_are_read(gemma4_target, gemma4_assistant, kind):
    target = gemma4_target(0)
    draft = Gemma4Draft.load(resolved(target, gemma4_assistant(False)), handle(target.model))
    held, states = (
        {k: (torch.randn(1, 2, 9, size), torch.randn(1, 2, 9, size)) for k, size in zip(KINDS, (8, 16), strict=True)},
        torch.randn(1, 1, 32),
    )
    x = draft.inputs(torch.tensor([[7]]), states, torch.zeros(1, 1, dtype=torch.bool))
    at, mask = torch.tensor([[8]]), masks(9, 6)
    before = draft(x, at, mask, held)
    changed = held | {kind: tuple(torch.zeros_like(part) for part in held[kind])}
    assert not torch.allclose(draft(x, at, mask, changed), before, atol=1e-3)


def test_a_rotation_unlike_the_targets_is_refused(gemma4_target, gemma4_assistant, tmp_path):
    target, assistant = gemma4_target(2), gemma4_assistant(False)
    stated = json.loads((assistant.path / "config.json").read_text())
    stated["text_config"]["rope_parameters"]["full_attention"]["rope_theta"] = 5000.0
    (tmp_path / "config.json").write_text(json.dumps(stated))
    save_file(load_file(assistant.path / "model.safetensors"), tmp_path / "model.safetensors")
    assistant = type(assistant)(tmp_path)
    with pytest.raises(DraftError, match=r"full_attention.*5000"):
        Gemma4Draft.load(resolved(target, assistant), handle(target.model))
