"""Finds the modules of a target that keep a recurrent state, by running a few tokens through it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache

from specdec.errors import TargetError
from specdec.model.recurrent.mixers import Mixer, tensors_of
from specdec.model.recurrent.states import MixerCache, MixerStates

PROBE_TOKENS = 8
TOLERANCE = 1e-4  # of a mixer's largest output


@dataclass
class _Calling:
    """A module that is running, and what it was given."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class _Seen:
    """What a probing forward showed."""

    stack: list[_Calling] = field(default_factory=list)  # innermost last
    mixers: dict[int, _Calling] = field(default_factory=dict)  # layer -> what updates its state
    attends: set[nn.Module] = field(default_factory=set)  # modules that write keys and values

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.stack.append(_Calling(module, args, kwargs))

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.stack.pop()


class _Probe(DynamicCache):
    """Notes which module updates which layer."""

    seen: _Seen

    def update(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.attends.add(self.seen.stack[-1].module)
        return super().update(*args, **kwargs)

    def update_conv_state(self, conv_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        self.seen.mixers[layer_idx] = self.seen.stack[-1]
        return super().update_conv_state(conv_states, layer_idx, *args, **kwargs)

    def update_recurrent_state(self, recurrent_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        self.seen.mixers[layer_idx] = self.seen.stack[-1]
        return super().update_recurrent_state(recurrent_states, layer_idx, *args, **kwargs)


def install_mixers(model: Any, layers: Sequence[int], cache_argument: str) -> int:
    """Make the recurrent ``layers`` of a model run over a ``SlotCache``; returns the bytes of one request's states.

    The modules are found by running a few tokens. Raises ``TargetError`` where a layer keeps its state elsewhere.
    """
    seen, cache = _probe(model, cache_argument)
    name = type(model).__name__
    missing = [layer for layer in layers if layer not in seen.mixers]
    if missing:
        raise TargetError(
            f"{name} does not keep the recurrent state of layer {missing[0]} in its cache, so rejected drafts cannot be "
            "taken back; run it with `specdec export vllm`"
        )
    modules = [calling.module for calling in seen.mixers.values()]
    for layer, calling in seen.mixers.items():
        if calling.module in seen.attends or modules.count(calling.module) > 1:
            raise TargetError(
                f"{name} mixes the recurrent state of layer {layer} with other state in one module "
                f"({type(calling.module).__name__}), so its tokens cannot be run one by one; run it with "
                "`specdec export vllm`"
            )
    size, continues = 0, {}
    for layer, calling in seen.mixers.items():
        states, kind = cache.layers[layer], type(calling.module)
        if kind not in continues:
            continues[kind] = _continues(calling, states.number_of_states)
        calling.module.forward = Mixer(calling.module, layer, states.number_of_states, continues[kind])
        for held in (states.conv_states, states.recurrent_states):
            size += sum(t.numel() * t.element_size() for t in held.values() if t is not None)
    return size


@torch.inference_mode()
def _probe(model: Any, cache_argument: str) -> tuple[_Seen, _Probe]:
    seen, cache = _Seen(), _Probe(config=model.config.get_text_config(decoder=True))
    cache.seen = seen
    hooks = [m.register_forward_pre_hook(seen.enter, with_kwargs=True) for m in model.modules()]
    hooks += [m.register_forward_hook(seen.leave, always_call=True) for m in model.modules()]
    try:
        tokens = torch.arange(PROBE_TOKENS, device=model.device)[None]
        model(input_ids=tokens, use_cache=True, **{cache_argument: cache})
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise TargetError(f"{type(model).__name__} cannot be run to find its recurrent layers: {first}") from error
    finally:
        for hook in hooks:
            hook.remove()
    return seen, cache


@torch.inference_mode()
def _continues(calling: _Calling, number_of_states: int) -> bool:
    """Whether several tokens behind others give what they give in one piece; some forms start from nothing each time."""
    module = copy.deepcopy(calling.module).float()

    def run(begin: int, end: int, states: MixerStates) -> torch.Tensor:
        def cut(value: Any) -> Any:
            if isinstance(value, Cache):
                return MixerCache(states)
            if isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[1] == PROBE_TOKENS:
                value = value[:, begin:end]
            return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        return tensors_of(module(*map(cut, calling.args), **{name: cut(v) for name, v in calling.kwargs.items()}))[0]

    middle, parts = PROBE_TOKENS // 2, MixerStates(number_of_states=number_of_states)
    whole = run(0, PROBE_TOKENS, MixerStates(number_of_states=number_of_states))
    run(0, middle, parts)
    behind = run(middle, PROBE_TOKENS, parts)
    return float((behind - whole[:, middle:]).abs().max()) <= TOLERANCE * float(whole.abs().max())
