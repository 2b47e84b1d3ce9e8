"""Tiny random targets whose checkpoints hold MTP layers in the layouts that were published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

VOCAB, WIDTH, DEPTH = 61, 32, 2
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {**MOE, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 8,
}
TRAILING = {  # part -> published name; {i} counts modules, {layer} is the number behind the target's last layer
    "layer": "model.layers.{layer}",
    "embed_norm": "model.layers.{layer}.enorm",
    "hidden_norm": "model.layers.{layer}.hnorm",
    "input_proj": "model.layers.{layer}.eh_proj",
    "norm": "model.layers.{layer}.shared_head.norm",
    "head": "model.layers.{layer}.shared_head.head",
    "embed_tokens": "model.layers.{layer}.embed_tokens",
}
QWEN = {
    "layer": "mtp.layers.{i}",
    "embed_norm": "mtp.pre_fc_norm_embedding",
    "hidden_norm": "mtp.pre_fc_norm_hidden",
    "input_proj": "mtp.fc",
    "norm": "mtp.norm",
}
MIMO = {
    "layer": "model.mtp_layers.{i}",
    "embed_norm": "model.mtp_layers.{i}.token_layernorm",
    "hidden_norm": "model.mtp_layers.{i}.hidden_layernorm",
    "input_proj": "model.mtp_layers.{i}.input_proj",
    "norm": "model.mtp_layers.{i}.final_layernorm",
}
# transformers class, its arguments, published names, keys of config.json
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, str], dict[str, Any]]] = {
    "deepseek_v3": ("DeepseekV3", {"num_key_value_heads": 4, "first_k_dense_replace": 1, **ROUTED, **LATENT}, TRAILING, {}),
    "glm4_moe": ("Glm4Moe", {"head_dim": 8, "first_k_dense_replace": 1, **ROUTED}, TRAILING, {}),
    "glm4_moe_lite": ("Glm4MoeLite", {"num_key_value_heads": 4, **ROUTED, **LATENT}, TRAILING, {}),
    "qwen3_next": ("Qwen3Next", {"num_experts": 4, "shared_expert_intermediate_size": 16, **MOE, **DELTA}, QWEN, {}),
    "qwen3_5_text": ("Qwen3_5Text", DELTA, QWEN, {}),
    "mimo": ("Qwen2", {"num_attention_heads": 2, "num_key_value_heads": 1}, MIMO, {"architectures": ["MiMoForCausalLM"]}),
}  # fmt: skip


@dataclass
class MTPTarget:
    """A model in memory, the directory it was saved to, and the MTP tensors there by their published names."""

    family: str
    model: Any
    path: Path
    names: dict[str, str]
    tensors: dict[str, torch.Tensor]

    def stored(self, part: str, module: int = 0) -> torch.Tensor:
        """The weight of a part (not of ``layer``) of a module."""
        return self.tensors[self.names[part].format(i=module, layer=DEPTH + module) + ".weight"]

    def layer(self, module: int = 0) -> dict[str, torch.Tensor]:
        """The tensors of the module's decoder layer, by the rest of their names."""
        prefix = self.names["layer"].format(i=module, layer=DEPTH + module) + "."
        others = tuple(n.format(i=module, layer=DEPTH + module) for part, n in self.names.items() if part != "layer")
        return {
            n.removeprefix(prefix): t
            for n, t in self.tensors.items()
            if n.startswith(prefix) and not n.startswith(others)
        }


def add_nothing(model: Any) -> None:
    """Zero what the layers of a target add, so that a token depends on the one before it only."""
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")):
            weight.data.zero_()


def make_mtp_target(family: str, modules: int, directory: Path, adds_nothing: bool = False) -> MTPTarget:
    """A random target of ``DEPTH`` layers; its MTP layers are the size of its last one."""
    import transformers

    name, arguments, names, keys = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**COMMON | arguments)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for module in model.modules():  # norms that start as ones would hide a norm that is left out
        if "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            torch.nn.init.normal_(module.weight, mean=float(module.weight.detach().mean()), std=0.3)
    if adds_nothing:
        add_nothing(model)
    model.save_pretrained(directory)
    saved = load_file(directory / "model.safetensors")
    last = f"model.layers.{DEPTH - 1}."
    tensors: dict[str, torch.Tensor] = {}
    for i in range(modules):
        at = {part: n.format(i=i, layer=DEPTH + i) for part, n in names.items()}
        block = {n.removeprefix(last): t for n, t in saved.items() if n.startswith(last)}
        tensors |= {f"{at['layer']}.{n}": torch.randn_like(t) * 0.3 + ("norm" in n) for n, t in block.items()}
        for part in ("embed_norm", "hidden_norm", "norm"):
            tensors[at[part] + ".weight"] = 1 + 0.3 * torch.randn(WIDTH)
        tensors[at["input_proj"] + ".weight"] = torch.randn(WIDTH, 2 * WIDTH) * 0.3
        if "head" in at:
            tensors[at["head"] + ".weight"] = saved["lm_head.weight"].clone()
            tensors[at["embed_tokens"] + ".weight"] = saved["model.embed_tokens.weight"].clone()
    save_file(saved | tensors, directory / "model.safetensors", {"format": "pt"})
    stated = {k: v for k, v in json.loads((directory / "config.json").read_text()).items() if k != "num_mtp_layers"}
    counted = "mtp_num_hidden_layers" if family.startswith("qwen3_5") else "num_nextn_predict_layers"
    (directory / "config.json").write_text(json.dumps({**stated, counted: modules, **keys}))
    return MTPTarget(family, model.eval(), directory, names, tensors)


@pytest.fixture(scope="session")
def mtp_target(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., MTPTarget]:
    """``mtp_target(family, modules=1, adds_nothing=False)``; made once."""
    made: dict[tuple[str, int, bool], MTPTarget] = {}

    def get(family: str, modules: int = 1, adds_nothing: bool = False) -> MTPTarget:
        key = (family, modules, adds_nothing)
        if key not in made:
            made[key] = make_mtp_target(family, modules, tmp_path_factory.mktemp(family), adds_nothing)
        return made[key]

    return get


@dataclass
class Gemma4Target:
    """A model in memory and the directory it was saved to."""

    model: Any
    path: Path


@dataclass
class Gemma4Assistant:
    """The directory of an assistant's checkpoint."""

    path: Path


GEMMA4 = {
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "sliding_window": 6,
    "max_position_embeddings": 160,
    "num_hidden_layers": 4,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


@pytest.fixture(scope="session")
def gemma4_target(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Gemma4Target]:
    """``gemma4_target(layers that share keys, adds_nothing=False)``; made once."""
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig

    made: dict[tuple[int, bool], Gemma4Target] = {}

    def get(shared: int, adds_nothing: bool = False) -> Gemma4Target:
        if (shared, adds_nothing) not in made:
            torch.manual_seed(shared)
            kinds = ["sliding_attention", "full_attention"] * 2
            sizes = {"hidden_size": 32, "intermediate_size": 48, "num_kv_shared_layers": shared, "layer_types": kinds}
            if shared:  # transformers 5.23 fails on layers that share keys without inputs per layer
                sizes |= {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64}
            model = Gemma4ForCausalLM(Gemma4TextConfig(**GEMMA4 | sizes, initializer_range=0.2)).eval()
            if adds_nothing:
                add_nothing(model)
            path = tmp_path_factory.mktemp("gemma4")
            model.save_pretrained(path)
            made[shared, adds_nothing] = Gemma4Target(model, path)
        return made[shared, adds_nothing]

    return get


@pytest.fixture(scope="session")
def gemma4_assistant(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Gemma4Assistant]:
    """``gemma4_assistant(ordered head)`` in the published layout: no keys, no values, a tied head; made once."""
    made: dict[bool, Gemma4Assistant] = {}
    kinds = ["sliding_attention"] * 3 + ["full_attention"]

    def get(ordered: bool) -> Gemma4Assistant:
        if ordered in made:
            return made[ordered]
        generator = torch.Generator().manual_seed(7)

        def draw(*shape: int, mean: float = 0.0) -> torch.Tensor:
            return mean + 0.3 * torch.randn(*shape, generator=generator)

        tensors = {
            "model.embed_tokens.weight": draw(64, 16),
            "model.norm.weight": draw(16, mean=1.0),
            "pre_projection.weight": draw(16, 64),
            "post_projection.weight": draw(32, 16),
        }
        for i, kind in enumerate(kinds):
            size, at = (16 if kind == "full_attention" else 8), f"model.layers.{i}."
            tensors |= {
                at + "self_attn.q_proj.weight": draw(4 * size, 16),
                at + "self_attn.q_norm.weight": draw(size, mean=1.0),
                at + "self_attn.o_proj.weight": draw(16, 4 * size),
                at + "mlp.gate_proj.weight": draw(24, 16),
                at + "mlp.up_proj.weight": draw(24, 16),
                at + "mlp.down_proj.weight": draw(16, 24),
                at + "layer_scalar": draw(1, mean=1.0),
            }
            for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
                tensors[f"{at}{norm}_layernorm.weight"] = draw(16, mean=1.0)
        if ordered:
            tensors["masked_embedding.centroids.weight"] = draw(8, 16)
            tensors["masked_embedding.token_ordering"] = torch.randperm(64, generator=generator)
        path = tmp_path_factory.mktemp("assistant")
        save_file(tensors, path / "model.safetensors", {"format": "pt"})
        rope = {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        }
        sizes = {"hidden_size": 16, "intermediate_size": 24, "num_kv_shared_layers": 4, "layer_types": kinds}
        text = {**GEMMA4, **sizes, "model_type": "gemma4_text", "rope_parameters": rope, "rms_norm_eps": 1e-6}
        config = {
            "architectures": ["Gemma4AssistantForCausalLM"],
            "model_type": "gemma4_assistant",
            "backbone_hidden_size": 32,
            "use_ordered_embeddings": ordered,
            "num_centroids": 8,
            "centroid_intermediate_top_k": 2,
            "tie_word_embeddings": True,
            "dtype": "float32",
            "text_config": text,
        }
        (path / "config.json").write_text(json.dumps(config))
        made[ordered] = Gemma4Assistant(path)
        return made[ordered]

    return get
