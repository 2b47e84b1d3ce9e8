"""Finds the tensors of MTP modules among those of a checkpoint, under the names of each family."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specdec.config.checkpoint.facts.tensor_names import normalised_name
from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Rename, Weights

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle


def fill_modules(modules: nn.ModuleList, config: SpeculativeConfig, target: TargetHandle) -> None:
    """Read every weight of ``modules`` (on the meta device) from the checkpoint of the finalized configuration.

    Names come from ``tensors.places`` of the record; tensors of single experts are stacked as the layer's class holds
    them. Raises ``DraftError`` for tensors that are missing, of another shape, or without a place.
    """
    rules = config.record.tensors
    depth = target.model.config.get_text_config(decoder=True).num_hidden_layers
    weights = Weights(
        config.draft["model"],
        revision=config.get("draft.revision"),
        rename=_renamed(
            rules,
            depth,
            len(modules),
            max(len(modules), config.draft.get("num_mtp_layers") or 0),
            bool(config.draft["same_checkpoint"]),
        ),
        device=target.device,
    )
    weights.ignore(*_copies(weights, modules))
    for name, place in modules.state_dict().items():
        parts = _expert_names(name, rules["stacked"], weights)
        dtype = _dtype(name, target)
        if name in weights or not parts:
            value = weights.take(name, place.shape).to(dtype)
        else:
            value = _stacked(weights, parts, place, dtype)
        owner, _, leaf = name.rpartition(".")
        module = modules.get_submodule(owner)
        if leaf in module._parameters:
            module._parameters[leaf] = nn.Parameter(value, requires_grad=False)
        else:
            module._buffers[leaf] = value
    left = [n for n, t in [*modules.named_parameters(), *modules.named_buffers()] if t.is_meta]
    if left:
        raise DraftError(f"the MTP layers of this target keep {left[0]} outside their weights; they are not run here")
    weights.finish()


def _renamed(rules: Mapping[str, Any], depth: int, used: int, stored: int, inside_target: bool) -> Rename:
    """Stored name -> ``{module}.{part}`` as ``MTPModule`` names its parts; None = of the target or an unused module."""
    places = {
        template.format(layer=depth + i, module=i): f"{i}.{part}"
        for template, part in rules["places"].items()
        for i in range(stored)
        if i == 0 or template.format(layer=depth, module=0) != template.format(layer=depth + i, module=i)
    }
    named = re.compile(rules["belongs"])

    def rename(written: str) -> str | None:
        name = normalised_name(written)
        for end in (m.start() for m in reversed(list(re.finditer(r"\.|$", name)))):
            if name[:end] in places:
                if int(places[name[:end]].partition(".")[0]) >= used:
                    return None
                rest = name[end:]
                for old, new in rules["renames"].items():
                    rest = rest.replace(old, new)
                return places[name[:end]] + rest
        return None if inside_target and not named.search(name) else name

    return rename


def _copies(weights: Weights, modules: nn.ModuleList) -> Iterator[str]:
    """Embeddings and heads that repeat the target's."""
    own = modules.state_dict()
    for name in weights:
        if name not in own and re.search(r"(^|\.)(embed_tokens|lm_head|head)\.weight$", name):
            yield name


def _expert_names(name: str, stacked: Mapping[str, Any], weights: Weights) -> list[list[str]]:
    """Per expert, the stored tensors that are joined to its part of the tensor ``name``; empty where it is no stack."""
    for suffix, parts in stacked.items():
        if not name.endswith(suffix):
            continue
        stem = name[: len(name) - len(suffix.rpartition(".")[2])]
        names: list[list[str]] = []
        while f"{stem}{len(names)}.{parts[0]}" in weights:
            names.append([f"{stem}{len(names)}.{part}" for part in parts])
        return names
    return []


def _stacked(weights: Weights, names: list[list[str]], place: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[experts, rows, columns], filled expert by expert."""
    if len(names) != place.shape[0]:
        raise DraftError(
            f"{weights.location} stores {len(names)} experts of an MTP layer ({names[0][0]} ...), but the target's "
            f"configuration has {place.shape[0]}; use the config.json that was saved with these weights"
        )
    out = torch.empty(place.shape, dtype=dtype, device=weights.device)
    rows = place.shape[1] // len(names[0])
    for expert, parts in enumerate(names):
        for i, part in enumerate(parts):
            out[expert, i * rows : (i + 1) * rows] = weights.take(part, (rows, place.shape[2]))
    return out


def _dtype(name: str, target: TargetHandle) -> torch.dtype:
    """As the target holds the same weight of its last layer; some stay in float32."""
    part = name.partition(".layer.")[2]
    held: Any = target.model.get_decoder().layers[-1].state_dict().get(part) if part else None
    return target.dtype if held is None else held.dtype
