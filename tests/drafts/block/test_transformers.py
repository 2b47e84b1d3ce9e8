"""DFlash against the drafter and the candidate generator that transformers has for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from block_run import Run
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator
from transformers.models.muse_glimmer_assistant.configuration_muse_glimmer_assistant import MuseGlimmerAssistantConfig
from transformers.models.muse_glimmer_assistant.modeling_muse_glimmer_assistant import MuseGlimmerAssistantModel

import specdec
from specdec.drafts.block.network import BlockDraft
from specdec.model.handle import TargetHandle

VOCAB, SIZE, LAYERS = 48, 32, 3


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=SIZE, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.3, tie_word_embeddings=False, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(params=[["full_attention"] * 2, ["sliding_attention", "full_attention"]], ids=["full", "sliding"])
def assistant(request: Any) -> MuseGlimmerAssistantModel:
    torch.manual_seed(1)
    config = MuseGlimmerAssistantConfig(
        hidden_size=SIZE, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, layer_types=request.param, sliding_window=6, target_layer_ids=[0, 1], block_size=5, mask_token_id=3,
        rms_norm_eps=1e-6, max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
    )  # fmt: skip
    model = MuseGlimmerAssistantModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.2) + (parameter.ndim == 1))
    return model


def ours(assistant: MuseGlimmerAssistantModel, target: LlamaForCausalLM, folder: Path) -> BlockDraft:
    assistant.save_pretrained(folder)
    file = folder / "config.json"
    written = json.loads(file.read_text())
    # no vocabulary is named, the matrices are the target's; and transformers' window of a mask that looks both ways
    # counts the distance, so that it sees one key more than a window of as many positions
    written |= {"vocab_size": VOCAB, "sliding_window": assistant.config.sliding_window + 1}
    file.write_text(json.dumps(written))
    result = specdec.resolve(
        {"target": {"model": "tiny"}, "speculative": {"model": str(folder), "num_speculative_tokens": 4}},
        target_config=target.config.to_dict(),
    )
    config = result.unwrap()
    assert config.method == "dflash" and config.wiring.capture_before_layer == (1, 2)
    handle = TargetHandle(
        target, target.get_input_embeddings(), target.get_output_embeddings(), VOCAB, SIZE, torch.float32,
        torch.device("cpu"), 128,
    )  # fmt: skip
    return BlockDraft.load(config, handle)


@torch.inference_mode()
def test_rounds_equal_those_of_transformers(
    assistant: MuseGlimmerAssistantModel, target: LlamaForCausalLM, tmp_path: Path
) -> None:
    network = ours(assistant, target, tmp_path)
    settings = target.generation_config
    settings.max_length = 100
    generator = DFlashTokenCandidateGenerator(
        assistant, target.get_input_embeddings(), target.get_output_embeddings(), settings
    )
    text, accepted, compared = [5, 6, 7, 8, 9, 10, 11], 0, 0
    cached = 0
    for fresh in (20, 21, 22, 23):
        ids = torch.tensor([[*text, fresh]])  # the target read ``text``; ``fresh`` is its newest token
        hidden = target(torch.tensor([text]), output_hidden_states=True).hidden_states
        # the generator is shown the states of the rows of the latest forward only
        seen = tuple(h[:, cached:] for h in hidden)
        outputs = type("Outputs", (), {"hidden_states": seen})()
        positions = torch.arange(len(text) + 1)[None]
        candidates, logits = generator.get_candidates(
            ids, {"position_ids": positions, "attention_mask": None}, outputs, False, accepted
        )
        states = torch.cat([hidden[1][0], hidden[2][0]], -1)
        drafts, rows, _ = Run(network, states, fresh, 5).greedy(4)
        assert candidates[0, len(text) + 1 :].tolist() == drafts
        assert torch.allclose(torch.stack(rows), logits[0], atol=1e-4)
        cached, accepted = len(text), 2
        text = [*text, fresh, *drafts[:2]]
        compared += 1
    assert compared == 4
