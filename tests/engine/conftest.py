"""Tiny random targets, a hand-made record, and a speculator that drafts what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from specdec.config.final.speculative_config import Namespace, SpeculativeConfig
from specdec.config.language.record import SpeculatorRecord
from specdec.speculators.base import BaseSpeculator, Drafts, Step

VOCAB = 61


def make_record(**changes: Any) -> SpeculatorRecord:
    """A minimal record for tests."""
    fields: dict[str, Any] = {
        "name": "scripted",
        "title": "Scripted",
        "summary": "Drafts what a test says.",
        "references": (),
        "status": "stable",
        "since": "0.1",
        "guarantee": "lossless",
        "implementation": None,
        "draft_model": None,
        "engines": {},
        "capabilities": {"proposes_draft_tokens": True},
        "options": {},
        "declares": None,
        "facts": {},
        "rewrites": (),
        "defaults": {},
        "derive": {},
        "hash_factors": (),
        "rules": (),
        "resources": {},
    }
    return SpeculatorRecord(**{**fields, **changes})


def make_config(k: int = 4, wiring: dict[str, Any] | None = None, **record: Any) -> SpeculativeConfig:
    """A finalized configuration around a minimal record."""
    names = ("options", "draft", "target", "engine", "sampling", "verification", "numbers", "resources")
    spaces = {name: Namespace() for name in names}
    return SpeculativeConfig(
        method="scripted",
        record=make_record(**record),
        num_speculative_tokens=k,
        wiring=Namespace(wiring or {}),
        **spaces,
    )


class ScriptedSpeculator(BaseSpeculator):
    """``script(known_token_ids, k) -> drafts`` decides; keeps every step it was given."""

    def __init__(self, config: SpeculativeConfig, script: Callable[[list[int], int], list[int]]) -> None:
        super().__init__(config, torch.device("cpu"))
        self.script = script
        self.history: dict[int, list[int]] = {}
        self.batches: list[Step] = []  # one a forward
        self.asked: list[Step] = []  # one a round of drafting
        self.finished: list[int] = []

    def start(self, slot: int, prompt_token_ids: torch.Tensor) -> None:
        assert slot not in self.history
        self.history[slot] = []

    def finish(self, slot: int) -> None:
        del self.history[slot]
        self.finished.append(slot)

    def observe(self, step: Step) -> None:
        self.batches.append(step)
        offsets = step.row_offsets.tolist()
        for r, slot in enumerate(step.slots.tolist()):
            consumed = step.token_ids[offsets[r] : offsets[r + 1]].tolist()
            rejected = int(step.num_rejected[r])
            start = int(step.positions[offsets[r]])
            # a speculator that trusts the steps rebuilds the text from them alone
            assert start == len(self.history[slot])
            self.history[slot] += consumed[: len(consumed) - rejected]
            assert int(step.next_token[r]) >= 0 or bool(step.finished[r])

    def propose(self, step: Step) -> Drafts:
        self.asked.append(step)
        assert int(step.num_drafts.min()) > 0 and int(step.last_sampled.min()) >= 0
        rows = [
            self.script([*self.history[slot], last], wanted)[:wanted]
            for slot, last, wanted in zip(
                step.slots.tolist(), step.last_sampled.tolist(), step.num_drafts.tolist(), strict=True
            )
        ]
        width = max([1, *(len(row) for row in rows)])
        return Drafts(torch.tensor([row + [-1] * (width - len(row)) for row in rows]))


def tiny_model(kind: str, seed: int = 1, **changes: Any) -> Any:
    """A random model of one architecture, float32, vocabulary 61."""
    import transformers as t

    torch.manual_seed(seed)
    common: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
    }
    window = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "llama": ("Llama", {}),
        "qwen2": ("Qwen2", {}),
        "qwen2_window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
        "qwen3": ("Qwen3", {"head_dim": 8}),
        "gemma": ("Gemma", {"head_dim": 8}),
        "gemma2": ("Gemma2", {"head_dim": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, **window}),
        "gemma3": ("Gemma3Text", {"head_dim": 8, **window}),
        "mistral": ("Mistral", {"sliding_window": 6, "head_dim": 8}),
        "phi": ("Phi", {"num_key_value_heads": 4}),
        "phi3": ("Phi3", {"sliding_window": 6}),
        "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128}),
        "gpt_neox": ("GPTNeoX", {}),
        "olmo": ("Olmo", {}),
        "olmo2": ("Olmo2", {}),
        "stablelm": ("StableLm", {}),
        "gptj": ("GPTJ", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "rotary_dim": 4}),
        "falcon": ("Falcon", {"alibi": False}),
        "opt": ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
        "gemma4_shared": (
            "Gemma4Text",
            {
                "num_hidden_layers": 4,
                "num_kv_shared_layers": 2,  # the last two read the keys and values of the first two
                "layer_types": window["layer_types"][:2] * 2,
                "sliding_window": 6,
                "head_dim": 8,
                "global_head_dim": 8,
                "vocab_size_per_layer_input": VOCAB,
                "hidden_size_per_layer_input": 8,
            },
        ),
        "granite": ("Granite", {"logits_scaling": 2.0}),
        "starcoder2": ("Starcoder2", {"sliding_window": 6}),
        "cohere": ("Cohere", {}),
        "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": None}),
    }
    prefix, extra = kinds[kind]
    config = getattr(t, f"{prefix}Config")(**{**common, **extra, **changes})
    model = t.AutoModelForCausalLM.from_config(config).eval()
    config.architectures = [type(model).__name__]
    # larger weights than the initialiser's, so that logits differ and text does not loop at once
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                weight.normal_(0, 0.25)
    model.generation_config.eos_token_id = config.eos_token_id
    return model


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Any]:
    """``tiny(kind)``: a cached tiny model."""
    held: dict[Any, Any] = {}

    def get(kind: str, **changes: Any) -> Any:
        key = (kind, str(sorted(changes.items())))
        if key not in held:
            held[key] = tiny_model(kind, **changes)
        return held[key]

    return get


@pytest.fixture
def scripted() -> Callable[..., ScriptedSpeculator]:
    """``scripted(script, k=4, **record)``: a speculator around a function."""

    def build(script: Callable[[list[int], int], list[int]], k: int = 4, **config: Any) -> ScriptedSpeculator:
        return ScriptedSpeculator(make_config(k, **config), script)

    return build
