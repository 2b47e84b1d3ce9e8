"""Put a target's native layers together as one stack, if what stands between them is what the stack does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from specdec_kernels.cpu.native import NativeLayer, NativeLinear, NativeNorm
from torch import nn

from specdec.model.attention import layer_windows
from specdec.model.batch import Batch
from specdec.model.kv_cache import SlotCache
from specdec.model.native.match import rms_norm_of
from specdec.model.native.stack import NativeStack, StackParts

if TYPE_CHECKING:
    from specdec.model.target import Target

_LENGTHS, _MORE = (5, 9), (3, 1)  # two requests: their prompts, then further tokens
# share of the largest logit by which two orders of summation may differ
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}


def find_parts(
    model: nn.Module, layers: dict[nn.Module, NativeLayer], linears: dict[nn.Module, NativeLinear]
) -> StackParts | None:
    """The parts around a model's decoder layers, all of which must have native counterparts; None if one is missing."""
    base: Any = getattr(model, "base_model", None)
    head, embed = _call(model, "get_output_embeddings"), _call(model, "get_input_embeddings")
    rotary, final = getattr(base, "rotary_emb", None), getattr(base, "norm", None)
    norm = rms_norm_of(final) if isinstance(final, nn.Module) else None
    if head not in linears or embed is None or norm is None or not isinstance(rotary, nn.Module):
        return None
    held = [m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) and all(c in layers for c in m)]
    if len(held) != 1 or len(held[0]) != len(layers):
        return None
    native = [layers[layer] for layer in held[0]]
    windows = layer_windows(model)
    shapes = {
        (n.hidden, n.parts.heads, n.parts.kv_heads, n.parts.head_dim, n.parts.linears["gate"].out_features)
        for n in native
    }
    if len(windows) != len(native) or len(shapes) != 1 or not all(n.packed for n in native) or not linears[head].packed:
        return None
    if [n.parts.layer_idx for n in native] != list(range(len(native))):
        return None
    return StackParts(native, windows, embed, rotary, norm, linears[head])


@torch.inference_mode()
def build_stack(target: Target, parts: StackParts, max_tokens: int | None = None) -> NativeStack | None:
    """A stack that was compared with the model: what stands between the layers bit by bit, its logits closely."""
    try:
        if not _glue_is_plain(target, parts):
            return None
        stack = NativeStack(parts, max_tokens)
        return stack if _agrees(target, stack) else None
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError):
        return None


def _glue_is_plain(target: Target, parts: StackParts) -> bool:
    """Whether the model is embedding, layers in a row, final norm and head, with one rotary table and nothing else."""
    model: Any = target.model
    layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == len(parts.layers))
    inputs: list[Any] = []
    outputs: list[torch.Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, kwargs: inputs.append((args, kwargs)), with_kwargs=True)
        for layer in layers
    ]
    hooks += [layer.register_forward_hook(lambda _, args, out: outputs.append(_first(out).clone())) for layer in layers]
    batch = _batch(target, _cache(target), _LENGTHS[:1], (0,), (0,), num_drafts=_LENGTHS[0] - 1)
    try:
        logits = target.padded_logits(batch)
    finally:
        for hook in hooks:
            hook.remove()
    ids = torch.tensor(batch.tokens)
    tables = model.base_model.rotary_emb(outputs[0], torch.arange(_LENGTHS[0])[None])
    stream = [parts.embed(ids), *outputs]
    norm = NativeNorm(parts.norm, target.dtype)
    return (
        len(inputs) == len(outputs) == len(parts.layers)
        and all(torch.equal(_states(call), before) for call, before in zip(inputs, stream, strict=False))
        and all(torch.equal(a, b) for _, kw in inputs for a, b in zip(kw["position_embeddings"], tables, strict=True))
        and torch.equal(logits, parts.head(norm(stream[-1]))[0])
    )


def _agrees(target: Target, stack: NativeStack) -> bool:
    """Compare logits with the model's for two requests: their prompts, and then a step with drafts."""
    ours, theirs = _cache(target), _cache(target)
    tolerance = _TOLERANCE[target.dtype]
    for counts, starts, drafts in ((_LENGTHS, (0, 0), 0), (_MORE, _LENGTHS, None)):
        stock = target.padded_logits(_batch(target, theirs, counts, starts, (0, 2), drafts))
        native = stack(_batch(target, ours, counts, starts, (0, 2), drafts))[0]
        if not torch.allclose(native.float(), stock.float(), rtol=0, atol=tolerance * float(stock.abs().max())):
            return False
    return True


def _batch(
    target: Target,
    cache: SlotCache,
    counts: Sequence[int],
    starts: Sequence[int],
    rows: Sequence[int],
    num_drafts: int | None,
) -> Batch:
    """Arbitrary tokens; ``num_drafts`` None counts all but the first of a request as drafts."""
    tokens = [
        [(7 + 31 * (s + i) + 11 * r) % target.vocab_size for i in range(c)]
        for r, (c, s) in enumerate(zip(counts, starts, strict=True))
    ]
    drafts = [c - 1 if num_drafts is None else num_drafts for c in counts]
    return Batch([], tokens, list(starts), list(rows), drafts, [True] * len(tokens), cache, target.layout, target.dtype)


def _cache(target: Target) -> SlotCache:
    return SlotCache(target.layout.num_layers, 3, max(_LENGTHS) + max(_MORE))


def _states(call: tuple[Any, Any]) -> torch.Tensor:
    args, kwargs = call
    return args[0] if args else kwargs["hidden_states"]


def _first(output: Any) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def _call(model: nn.Module, name: str) -> Any:
    method = getattr(model, name, None)
    return method() if callable(method) else None
