"""The modules of a target that keep a recurrent state, made to run requests of different lengths over snapshots."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from specdec.model.kv_cache import SlotCache
from specdec.model.recurrent.states import MixerCache, MixerStates, RecurrentStates, Snapshots, Spans


def tensors_of(output: Any) -> list[torch.Tensor]:
    """What a mixer returns, each [R, W, ...]."""
    return list(output) if isinstance(output, tuple) else [output]


class Mixer:
    """Stands in for a mixer's ``forward``: over a ``SlotCache`` each request's own tokens, without its padding.

    Prompts run in one piece. Tokens that may be rejected run one by one, as they do in plain decoding, and leave a
    snapshot each. ``continues``: several tokens may go on from a state in one piece.
    """

    def __init__(self, module: nn.Module, layer: int, number_of_states: int, continues: bool) -> None:
        self.original, self.layer = module.forward, layer
        self.number_of_states, self.continues = number_of_states, continues

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, SlotCache)), None)
        if cache is None:
            return self.original(*args, **kwargs)
        spans = cache.plan.spans
        assert spans is not None, "recurrent layers need the spans of a batch"
        snapshots = cache.recurrent.plan(spans)
        hidden = args[0] if args else kwargs["hidden_states"]
        call = _Call(self, args, kwargs, cache.recurrent, spans, snapshots, hidden.shape[:2])
        pieces: dict[tuple[int, bool], list[int]] = {}
        steps = []
        for r, (count, drafts) in enumerate(zip(spans.counts, spans.num_drafts, strict=True)):
            if drafts or not (snapshots[r].before is None or self.continues):
                steps.append(r)
            else:
                pieces.setdefault((count, snapshots[r].before is None), []).append(r)
        for (count, _), requests in pieces.items():
            call.run(requests, [0] * len(requests), count)
        for step in range(max((spans.counts[r] for r in steps), default=0)):
            going = [r for r in steps if step < spans.counts[r]]
            call.run(going, [step] * len(going), 1)
        return call.outputs[0] if len(call.outputs) == 1 else tuple(call.outputs)


class _Call:
    """One call of a mixer over a batch, piece by piece."""

    def __init__(
        self,
        mixer: Mixer,
        args: Any,
        kwargs: Any,
        held: RecurrentStates,
        spans: Spans,
        snapshots: list[Snapshots],
        shape: Any,
    ) -> None:
        self.mixer, self.args, self.kwargs, self.held = mixer, args, kwargs, held
        self.spans, self.snapshots, self.shape = spans, snapshots, shape
        self.outputs: list[torch.Tensor] = []

    def run(self, requests: list[int], steps: list[int], count: int) -> None:
        """Run ``count`` tokens of each request from its own token ``steps`` on, all of them fresh or none."""
        width, layer = self.shape[1], self.mixer.layer
        states = MixerStates(number_of_states=self.mixer.number_of_states)
        rows = [self.spans.rows[r] for r in requests]
        before = [self.snapshots[r].behind(s - 1) for r, s in zip(requests, steps, strict=True)]
        if before[0] is not None:
            self.held.load(layer, rows, before, states)  # type: ignore[arg-type]
        index = torch.tensor(requests)[:, None]
        firsts = [width - self.spans.counts[r] + s for r, s in zip(requests, steps, strict=True)]
        columns = torch.tensor(firsts)[:, None] + torch.arange(count)
        cache = MixerCache(states)
        args = [self._cut(value, index, columns, cache) for value in self.args]
        kwargs = {name: self._cut(value, index, columns, cache) for name, value in self.kwargs.items()}
        out = self.mixer.original(*args, **kwargs | ({"attention_mask": None} if "attention_mask" in kwargs else {}))
        pieces = tensors_of(out)
        if not self.outputs:
            self.outputs = [piece.new_zeros(*self.shape, *piece.shape[2:]) for piece in pieces]
        for whole, piece in zip(self.outputs, pieces, strict=True):
            whole[index, columns] = piece
        after = [self.snapshots[r].behind(s) for r, s in zip(requests, steps, strict=True)]
        self.held.store(layer, rows, after, states)

    def _cut(self, value: Any, index: torch.Tensor, columns: torch.Tensor, cache: MixerCache) -> Any:
        """The part of an argument that belongs to these tokens."""
        if isinstance(value, SlotCache):
            return cache
        if isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[1] == self.shape[1]:
            if value.shape[0] == self.shape[0]:
                return value[index, columns]
            if value.shape[0] == 1:
                return value[0][columns]
        return value
