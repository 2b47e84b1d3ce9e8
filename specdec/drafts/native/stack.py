"""Rounds of a draft network in the native CPU kernels: one call each."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, addressof, c_float, c_int32, c_int64, c_void_p
from typing import Any

import torch
from specdec_kernels.cpu.arena import Arena
from specdec_kernels.cpu.native import (
    NativeLayer,
    NativeLinear,
    StepArguments,
    arena_for,
    native_function,
    supports_linear,
)
from torch import nn

from specdec.drafts.native.layer_parts import draft_layer_parts
from specdec.drafts.native.parts import DraftParts
from specdec.model.accelerate import native_linear
from specdec.model.kv_cache import SlotCache
from specdec.model.native.layout import (
    Stack,
    address,
    describe_layers,
    packed,
    packed_norms,
    packed_scale,
    rotary_tables,
)
from specdec.model.native.match import rms_norm_of

_MOST_DRAFTS = 256  # of a block
_EMBEDDED, _JOINED, _BESIDE = 0, 1, 2  # as in draft.h


class _Draft(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("stack", "fc", "join", "state_norm", "feature_norm", "embed_norm")],
        *[(name, c_void_p) for name in ("embed", "mask", "blank", "markov_embed", "markov", "confidence", "warmth")],
        ("to_target", c_void_p),
        *[(name, c_int32) for name in ("entry", "states", "state_chunks", "feature_first")],
        *[(name, c_int32) for name in ("normed_residual", "normed_feedback", "first_empty")],
        *[(name, c_int32) for name in ("blank_token", "reads_token", "pad")],
        *[(name, c_float) for name in ("eps_state", "eps_feature", "eps_embed", "confidence_bias")],
    ]


class _Round(Structure):
    _fields_ = [
        *[(name, c_void_p) for name in ("count", "start", "row", "given", "kept", "steps", "tokens", "states")],
        ("stride", c_int64),
        *[(name, c_int32) for name in ("requests", "projected", "width", "pad")],
        *[(name, c_void_p) for name in ("ids", "probs", "logits", "hidden", "feedback")],
    ]


class NativeDraft:
    """Runs the rounds of a draft over the rows of its own ``SlotCache``, for any number of requests."""

    def __init__(self, parts: DraftParts, to_target: torch.Tensor | None, cache: SlotCache) -> None:
        """Raises ValueError where the kernels run no such parts; whether they compute the same is for a check to say."""
        layers = [draft_layer_parts(m, i, not (parts.beside and i == 0)) for i, m in enumerate(parts.layers)]
        loose = [m for m in (parts.fc, parts.join, parts.head, parts.markov) if m is not None]
        if not layers or any(layer is None for layer in layers) or not all(map(supports_linear, loose)):
            raise ValueError("the draft's layers or linear maps are not of the kind that the kernels run")
        if not _fits(parts):
            raise ValueError("the widths of the draft's linear maps do not follow one another")
        self.parts, self.cache, self.dtype = parts, cache, parts.head.weight.dtype
        self.hidden_size, self.vocab_size = parts.embed.weight.shape[1], parts.head.weight.shape[0]
        maps = [*loose, *(m for layer in layers if layer for m in layer.linears.values())]
        arena = arena_for(m for m in maps if not _is_packed(m))
        self._layers = [NativeLayer(layer, StepArguments(), arena) for layer in layers if layer is not None]
        self._linears = [_linear(m, arena) for m in (parts.fc, parts.join, parts.head, parts.markov)]
        self._keep: list[Any] = [parts, arena]
        self._stack = self._describe()
        self._draft = self._describe_entry(to_target)
        arguments = [c_void_p, c_void_p, ctypes.c_int]
        self._call = native_function("draft", self.dtype, arguments)
        self._context_call = native_function("draft_context", self.dtype, [c_void_p] * 3 + [c_float, ctypes.c_int])

    def chain(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        steps: Sequence[int],
        confident: bool = False,
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """Consume the pairs of R requests, then draft greedily: target ids [R][steps[r]] and the draft's probability of each.

        ``rows``: cache rows; ``starts``: position of each first pair; ``states[r]`` [n, S]: the target's states of its
        pairs, as captured; ``steps[r]`` = 0 only consumes. Keys and values of pairs and drafts are written behind ``starts``.
        """
        kept = [1 if k else 0 for k in steps]
        return self._greedy(rows, starts, tokens, states, kept, steps, steps, confident, False)

    def logits(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        kept: Sequence[int] | None = None,
        projected: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [W, V] and features for the next draft [W, H] of the last ``kept[r]`` rows of each request (default 1).

        ``projected``: ``states`` are features. A request with fewer states than tokens has mask features behind them.
        """
        kept = [1] * len(rows) if kept is None else kept
        logits = torch.empty((sum(kept), self.vocab_size), dtype=self.dtype)
        feedback = torch.empty((sum(kept), self.hidden_size), dtype=self.dtype)
        self._round(rows, starts, tokens, states, kept, [1] * len(rows), projected, logits=logits, feedback=feedback)
        return logits, feedback

    def block(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        kept: Sequence[int],
        confident: bool = False,
        projected: bool = False,
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        """One pass whose last ``kept[r]`` rows draft a token each; otherwise as ``chain``, ``projected`` as in ``logits``."""
        return self._greedy(rows, starts, tokens, states, kept, [1] * len(rows), kept, confident, projected)

    def hidden(
        self, rows: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]], kept: Sequence[int]
    ) -> torch.Tensor:
        """What the head would read [W, H] of the last ``kept[r]`` rows of each request, whose tokens have no states."""
        out = torch.empty((sum(kept), self.hidden_size), dtype=self.dtype)
        none = [out[:0]] * len(rows)
        round_, keep = self._describe_round(rows, starts, tokens, none, kept, [1] * len(rows))
        round_.hidden = out.data_ptr()
        self._call(addressof(self._draft), addressof(round_), torch.get_num_threads())
        del keep
        return out

    def write_context(self, rows: Sequence[int], starts: Sequence[int], states: Sequence[torch.Tensor]) -> None:
        """Keys and values of features of ``states[r]`` [n, S] from position ``starts[r]`` on, without running the layers."""
        norm = self._context_norm
        round_, keep = self._describe_round(
            rows, starts, [range(len(s)) for s in states], states, [0] * len(rows), None
        )
        scale, eps = (norm[0].data_ptr(), norm[1]) if norm else (None, 0.0)
        self._context_call(addressof(self._draft), addressof(round_), scale, eps, torch.get_num_threads())
        del keep

    def _greedy(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        kept: Sequence[int],
        steps: Sequence[int],
        drafts: Sequence[int],
        confident: bool,
        projected: bool,
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        width = max(drafts)
        if width > _MOST_DRAFTS:
            raise ValueError(f"a round drafts {width} tokens; {_MOST_DRAFTS} are the most")
        ids = (c_int32 * (len(rows) * width))()
        probs = (c_float * (len(rows) * width))() if confident and width else None
        self._round(rows, starts, tokens, states, kept, steps, projected, width, ids, probs)
        drafted, chances = list(ids), list(probs or ())
        spans = [(r * width, r * width + k) for r, k in enumerate(drafts)]
        return [drafted[a:b] for a, b in spans], [chances[a:b] for a, b in spans] if confident else None

    def _round(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        kept: Sequence[int],
        steps: Sequence[int],
        projected: bool = False,
        width: int = 0,
        ids: Any = None,
        probs: Any = None,
        logits: torch.Tensor | None = None,
        feedback: torch.Tensor | None = None,
    ) -> None:
        round_, keep = self._describe_round(rows, starts, tokens, states, kept, steps)
        round_.projected, round_.width = projected, width
        round_.ids = addressof(ids) if width else None
        round_.probs = addressof(probs) if probs is not None else None
        round_.logits, round_.feedback = address(logits), address(feedback)
        self._call(addressof(self._draft), addressof(round_), torch.get_num_threads())
        del keep

    def _describe_round(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        tokens: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        kept: Sequence[int],
        steps: Sequence[int] | None,
    ) -> tuple[_Round, Any]:
        counts, given = [len(t) for t in tokens], [s.shape[0] for s in states]
        ends = [s + n + max(k, 1) - 1 for s, n, k in zip(starts, counts, steps or kept, strict=True)]
        if max(ends) > self.cache.capacity or max(rows) >= self.cache.max_rows:
            raise ValueError(f"a round of drafts ends at position {max(ends)} of {self.cache.capacity}")
        flat = tokens[0] if len(tokens) == 1 else [token for row in tokens for token in row]
        columns = (counts, starts, rows, given, kept, steps or kept, flat)
        arrays = [(c_int32 * len(values))(*values) for values in columns]
        strides = {s.stride(0) for s in states if s.shape[0] > 1}
        if len(strides) > 1 or any(s.dtype != self.dtype or s.stride(-1) != 1 for s in states if s.shape[0]):
            states = [s.to(self.dtype).contiguous() for s in states]
            strides = {s.shape[1] for s in states if s.shape[0]}
        pointers = (c_void_p * len(states))(*[s.data_ptr() for s in states])
        stride = strides.pop() if strides else 0
        return _Round(*map(addressof, arrays), addressof(pointers), stride, len(rows)), (arrays, pointers, states)

    def _describe(self) -> Stack:
        parts, cache, layers = self.parts, self.cache, self._layers
        head_dim = layers[0].parts.head_dim
        tables = rotary_tables(parts.rotary, cache.capacity, head_dim, self.dtype)
        norm = rms_norm_of(parts.norm) if parts.norm is not None else None
        if tables is None or len(cache.layers) != len(layers) or (norm is None) != (parts.norm is None):
            raise ValueError("the draft's rotary tables, cache or final norm are not of the kind that the kernels read")
        windows, both_ways = (given or [0] * len(layers) for given in (parts.windows, parts.both_ways))
        norms = [packed_norms(layer) for layer in layers]
        described = describe_layers(layers, norms, windows, both_ways, cache)
        final, row, head = packed_scale(norm, self.dtype), cache.layers[0].keys.stride(), self._linears[2]
        self._keep += [tables, norms, described, final]
        assert head is not None
        return Stack(
            *(addressof(described), address(final), tables[0].data_ptr(), tables[1].data_ptr(), head.address),
            *(row[0], row[1], len(layers), norm.eps if norm else 0.0),
        )

    def _describe_entry(self, to_target: torch.Tensor | None) -> _Draft:
        parts = self.parts
        fc, join, _, markov = self._linears
        chunks = [rms_norm_of(m) for m in parts.state_norms]
        e, g, c = (
            None if m is None else rms_norm_of(m) for m in (parts.embed_norm, parts.feature_norm, parts.context_norm)
        )
        wanted = (parts.embed_norm, parts.feature_norm, parts.context_norm)
        if any(n is None for n in chunks) or any(
            (a is None) != (b is None) for a, b in zip((e, g, c), wanted, strict=True)
        ):
            raise ValueError("a norm of the draft is not an RMS norm")
        state_norm = packed(torch.cat([n.scale for n in chunks if n]), self.dtype) if chunks else None
        embed_norm, feature_norm = packed_scale(e, self.dtype), packed_scale(g, self.dtype)
        self._context_norm = (packed(c.scale, self.dtype), c.eps) if c else None
        ids = None if to_target is None else to_target.to(torch.int32).contiguous()
        before = None if parts.markov_embed is None else parts.markov_embed.weight
        tables = (parts.embed.weight, parts.mask_feature, parts.blank, before)
        if any(t is not None and (t.dtype != self.dtype or not t.is_contiguous()) for t in tables):
            raise ValueError("an embedding of the draft has another dtype than its head")
        judge, warmth = parts.confidence, None
        if (given := parts.temperatures) is not None:  # the last one holds for all rows behind it
            warmth = 1.0 / torch.cat([given.float(), given[-1:].float().expand(_MOST_DRAFTS)])
        scores = None if judge is None else packed(judge.weight[0].float(), self.dtype)
        bias = float(judge.bias) if judge is not None and judge.bias is not None else 0.0
        self._keep += [state_norm, embed_norm, feature_norm, ids, scores, warmth]
        entry = _BESIDE if parts.beside else _JOINED if join else _EMBEDDED
        return _Draft(
            *(addressof(self._stack), fc and fc.address, join and join.address),
            *map(address, (state_norm, feature_norm, embed_norm, *tables)),
            *(markov and markov.address, address(scores), address(warmth), address(ids)),
            *(entry, fc.k if fc else self.hidden_size, max(1, len(chunks)), parts.feature_first),
            *(parts.normed_residual, parts.normed_feedback, parts.first_empty),
            *(parts.blank_token, parts.confidence_reads_token, 0),
            *(chunks[0].eps if chunks and chunks[0] else 0.0, g.eps if g else 0.0, e.eps if e else 0.0, bias),
        )


def _is_packed(module: nn.Module) -> bool:
    native = native_linear(module)
    return native is not None and native.packed


def _linear(module: Any, arena: Arena) -> NativeLinear | None:
    return None if module is None else native_linear(module) if _is_packed(module) else NativeLinear(module, arena)


def _fits(parts: DraftParts) -> bool:
    """Whether each linear map reads what the one before it writes, in one dtype."""
    hidden, first = parts.embed.weight.shape[1], parts.layers[0] if len(parts.layers) else None
    widths = [(parts.head, "in_features", hidden), (parts.fc, "out_features", hidden)]
    widths += [(parts.join, "in_features", 2 * hidden), (parts.join, "out_features", hidden)]
    rank = 0 if parts.markov_embed is None else parts.markov_embed.weight.shape[1]
    widths += [(parts.markov, "in_features", rank), (parts.markov, "out_features", parts.head.out_features)]
    widths += [(parts.confidence, "in_features", hidden + rank * parts.confidence_reads_token)]
    shapes = set()
    for layer in parts.layers:
        attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
        wide = 2 * hidden if parts.beside and layer is first else hidden
        linears = [getattr(attention, f"{name}_proj", None) for name in ("q", "k", "v", "o")]
        linears += [getattr(mlp, f"{name}_proj", None) for name in ("gate", "up", "down")]
        if any(linear is None for linear in linears):
            return False
        q, k, v, o, gate, up, down = linears
        widths += [(m, "in_features", wide) for m in (q, k, v)] + [(m, "in_features", hidden) for m in (gate, up)]
        widths += [(m, "out_features", hidden) for m in (o, down)] + [(v, "out_features", k.out_features)]
        widths += [(o, "in_features", q.out_features), (down, "in_features", gate.out_features)]
        widths += [(up, "out_features", gate.out_features)]
        shapes.add((q.out_features, k.out_features, gate.out_features))
    maps = [m for m, _, _ in widths if m is not None and m is not parts.confidence]
    return (
        len(shapes) == 1
        and len({m.weight.dtype for m in maps}) == 1
        and all(m is None or getattr(m, name) == width for m, name, width in widths)
    )
