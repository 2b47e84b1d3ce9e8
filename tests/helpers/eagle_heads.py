"""Random EAGLE heads in every published layout, a tiny target for them, and what they compute written out once more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.config.resolve.resolve import resolve

LAYERS, HIDDEN, VOCAB, REDUCED = 8, 32, 61, 24
HEADS, KV_HEADS, HEAD_DIM, MLP = 4, 2, 16, 48
BOUNDARIES = (2, 4, 5)  # the default of all producers for 8 layers
COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
}
Tensors = dict[str, torch.Tensor]


def target_model(seed: int = 0, **changes: Any) -> Any:
    """A random Llama of eight layers in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 256,
        "initializer_range": 0.25,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**{**shape, **changes})).eval()


def _random(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5


def layer_tensors(generator: torch.Generator, index: int, width: int) -> Tensors:
    """One decoder layer under ``layers.{index}.`` whose attention reads ``width`` values."""
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, width),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, width),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, width),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    norms = ("input_layernorm", "post_attention_layernorm")
    tensors = {f"layers.{index}.{name}.weight": 1.5 * _random(generator, *shape) for name, shape in shapes.items()}
    return tensors | {f"layers.{index}.{name}.weight": 1 + 0.2 * _random(generator, HIDDEN) for name in norms}


def eagle1_tensors(seed: int = 0, *, bias: bool = False) -> Tensors:
    """As SafeAILab stores them: no first norm, no final norm, no head."""
    generator = torch.Generator().manual_seed(seed)
    tensors = layer_tensors(generator, 0, HIDDEN)
    del tensors["layers.0.input_layernorm.weight"]
    tensors["fc.weight"] = 1.5 * _random(generator, HIDDEN, 2 * HIDDEN)
    if bias:
        tensors["fc.bias"] = _random(generator, HIDDEN)
    return tensors


def eagle3_tensors(seed: int = 0, *, layers: int = 1, reduced: bool = True, taps: int = len(BOUNDARIES)) -> Tensors:
    """Normalised names; ``taps`` target states are fused."""
    generator = torch.Generator().manual_seed(seed)
    tensors = layer_tensors(generator, 0, 2 * HIDDEN)
    for i in range(1, layers):
        tensors |= layer_tensors(generator, i, HIDDEN)
    tensors["layers.0.hidden_norm.weight"] = 1 + 0.2 * _random(generator, HIDDEN)
    tensors["norm.weight"] = 1 + 0.2 * _random(generator, HIDDEN)
    tensors["fc.weight"] = 1.5 * _random(generator, HIDDEN, taps * HIDDEN)
    rows = REDUCED if reduced else VOCAB
    tensors["lm_head.weight"] = 3 * _random(generator, rows, HIDDEN)
    if reduced:
        members = torch.randperm(VOCAB, generator=generator)[:REDUCED].sort().values
        tensors["d2t"] = members - torch.arange(REDUCED)
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, members, True)
    return tensors


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> str:
    """Save a checkpoint; returns its location."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return str(folder)


def midlayer(tensors: Tensors) -> Tensors:
    """Layer 0 under the name of SafeAILab, SpecForge and AngelSlim."""
    return {name.replace("layers.0.", "midlayer."): value for name, value in tensors.items()}


def resolved(method: str, draft: str, k: int = 4, target: str | None = None, **options: Any) -> SpeculativeConfig:
    """The finalized configuration; ``target`` is the location of a saved target."""
    document: dict[str, Any] = {
        "target": {"model": target or "tiny"},
        "speculative": {"method": method, "model": draft, "num_speculative_tokens": k, **options},
    }
    shape = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCAB, "model_type": "llama"}
    return resolve(document, target_config=None if target else shape).unwrap()


def chain(network: Any, token_ids: Sequence[int], states: torch.Tensor, k: int) -> tuple[list[int], torch.Tensor]:
    """Greedy target ids and logits [k, V_d] after pairs of ``token_ids`` [P] and target ``states`` [P, S]; no cache."""
    tokens, features = list(token_ids), network.features(states)
    rows = []
    for step in range(k):
        first = torch.arange(len(tokens)) == 0
        x = network.inputs(torch.tensor(tokens), features, first)[None]
        hidden = network(x, torch.arange(len(tokens))[None], None, None, step)[0, -1:]
        rows.append(network.logits(hidden, step))
        draft = int(rows[-1].argmax())
        tokens.append(draft if network.to_target is None else int(network.to_target[draft]))
        features = torch.cat((features, network.feedback(hidden, step)))
    return tokens[len(token_ids) :], torch.cat(rows)


def reference(
    w: Tensors,
    embed: torch.Tensor,
    head: torch.Tensor,
    tokens: Sequence[int],
    states: torch.Tensor,
    k: int,
    **flags: Any,
) -> tuple[list[int], torch.Tensor]:
    """The same from the formulas, a row and a head at a time; ``flags``: norm_before_residual, norm_output."""
    fused = "layers.0.hidden_norm.weight" in w
    tokens, made = list(tokens), []

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean() + 1e-5).sqrt() * w[name] if name in w else x

    def turn(x: torch.Tensor, position: int) -> torch.Tensor:
        half, out = HEAD_DIM // 2, x.clone()
        for i in range(half):
            angle = torch.tensor(position * 1000.0 ** (-i / half))
            out[i] = x[i] * angle.cos() - x[i + half] * angle.sin()
            out[i + half] = x[i] * angle.sin() + x[i + half] * angle.cos()
        return out

    def layer(index: int, stream: list[torch.Tensor], attends: list[torch.Tensor]) -> list[torch.Tensor]:
        at, group = f"layers.{index}.", HEADS // KV_HEADS
        q, k, v = ([(w[f"{at}self_attn.{n}_proj.weight"] @ x).view(-1, HEAD_DIM) for x in attends] for n in "qkv")
        out = []
        for p, x in enumerate(stream):
            heads = []
            for h in range(HEADS):
                query = turn(q[p][h], p)
                scores = torch.stack([query @ turn(k[j][h // group], j) for j in range(p + 1)]) / HEAD_DIM**0.5
                heads.append(sum(a * v[j][h // group] for j, a in enumerate(scores.softmax(0))))
            x = x + w[f"{at}self_attn.o_proj.weight"] @ torch.cat(heads)
            y = norm(x, f"{at}post_attention_layernorm.weight")
            gate, up = w[f"{at}mlp.gate_proj.weight"] @ y, w[f"{at}mlp.up_proj.weight"] @ y
            out.append(x + w[f"{at}mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up))
        return out

    g = [w["fc.weight"] @ s for s in states] if fused else list(states)
    for _ in range(k):
        e = [embed[t] for t in tokens]
        if fused:
            h = [norm(x, "layers.0.hidden_norm.weight") for x in g]
            attends = [torch.cat((norm(a, "layers.0.input_layernorm.weight"), b)) for a, b in zip(e, h, strict=True)]
            stream = layer(0, h if flags.get("norm_before_residual") else g, attends)
        else:
            x = [w["fc.weight"] @ torch.cat((a, b)) + w.get("fc.bias", 0) for a, b in zip(e, g, strict=True)]
            stream = layer(0, x, x)
        for i in range(1, 9):
            if f"layers.{i}.mlp.up_proj.weight" in w:
                stream = layer(i, stream, [norm(x, f"layers.{i}.input_layernorm.weight") for x in stream])
        made.append(head @ norm(stream[-1], "norm.weight"))
        draft = int(made[-1].argmax())
        tokens.append(draft + int(w["d2t"][draft]) if "d2t" in w else draft)
        g = [*g, norm(stream[-1], "norm.weight") if flags.get("norm_output") else stream[-1]]
    return tokens[-k:], torch.stack(made)
