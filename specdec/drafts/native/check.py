"""Give a draft network its native form, if that computes the same as its torch modules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from specdec_kernels.cpu import build
from torch import nn

from specdec.drafts.native.stack import NativeDraft
from specdec.drafts.network import DraftNetwork
from specdec.model.kv_cache import CachePlan, SlotCache

_IDS, _HEAD_ROWS = 64, 256  # what the compared copy keeps of the embedding and the head
_LENGTHS, _FEEDS, _MORE = (9, 5), (4, 2), 2  # two requests: pairs in two rounds, then drafts
_BLOCK = 5  # drafts of a block
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError)


def native_draft(network: DraftNetwork, cache: SlotCache) -> NativeDraft | None:
    """The network over the rows of ``cache`` in the CPU kernels; None where it has to run in torch.

    A float32 copy with a short embedding and head must give the same features, drafts and logits as its torch modules.
    """
    parts = network.parts()
    if parts is None or parts.head.weight.device.type != "cpu" or not build.available():
        return None
    try:
        with torch.inference_mode(False), torch.no_grad():
            return NativeDraft(parts, network.to_target, cache) if _same(network) else None
    except _FAILURES:
        return None


def _same(network: DraftNetwork) -> bool:
    small = _small(network)
    return _same_blocks(small) if hasattr(small, "write_context") else _same_chain(small)


def _same_chain(small: DraftNetwork) -> bool:
    parts = small.parts()
    assert parts is not None
    native = NativeDraft(parts, None, SlotCache(len(parts.layers), 3, max(_LENGTHS) + _MORE))
    generator = torch.Generator().manual_seed(0)
    size = parts.fc.in_features if parts.fc is not None else small.feature_size
    ids = [torch.randint(0, _IDS, (n + _MORE,), generator=generator).tolist() for n in _LENGTHS]
    states = [torch.randn(n, size, generator=generator) * 2 for n in _LENGTHS]
    rows = (2, 0)
    native.chain(rows, (0, 0), [t[:n] for t, n in zip(ids, _FEEDS, strict=True)], _heads(states, _FEEDS), (1, 0))
    begun = [s[n:] for s, n in zip(states, _FEEDS, strict=True)]
    tokens = [t[a:b] for t, a, b in zip(ids, _FEEDS, _LENGTHS, strict=True)]
    logits, features = native.logits(rows, _FEEDS, tokens, begun)
    ours = [(logits, features)]
    for step in range(_MORE):
        starts = [n + step for n in _LENGTHS]
        drafts = [[t[at]] for t, at in zip(ids, starts, strict=True)]
        ours.append(native.logits(rows, starts, drafts, list(ours[-1][1].split(1)), projected=True))
    for r, length in enumerate(_LENGTHS):
        theirs = _recomputed(small, ids[r], states[r], length)
        for (logits, features), (expected, fed) in zip(ours, theirs, strict=True):
            if not _close(logits[r], expected) or not _close(features[r], fed):
                return False
    return True


def _same_blocks(small: Any) -> bool:
    """Blocks behind a context written in two parts: their logits, and the drafts that follow from them one by one."""
    parts = small.parts()
    width = _BLOCK + (not small.anchor_first)
    cache = SlotCache(len(parts.layers), 3, max(_LENGTHS) + width)
    native = NativeDraft(parts, small.to_target, cache)
    generator = torch.Generator().manual_seed(0)
    size = parts.fc.in_features if parts.fc is not None else small.feature_size
    states = [torch.randn(n, size, generator=generator) * 2 for n in _LENGTHS]
    rows, kept, anchors = (
        (2, 0),
        [_BLOCK] * len(_LENGTHS),
        torch.randint(1, _IDS, (len(_LENGTHS),), generator=generator),
    )
    native.write_context(rows, (0, 0), _heads(states, _FEEDS))
    native.write_context(rows, _FEEDS, [s[n:] for s, n in zip(states, _FEEDS, strict=True)])
    tokens = [small.block_ids(anchors[r : r + 1], width)[0].tolist() for r in range(len(rows))]
    none = [states[0][:0]] * len(rows)
    logits = native.logits(rows, _LENGTHS, tokens, none, kept)[0].split(kept)
    read = native.hidden(rows, _LENGTHS, tokens, kept).split(kept)
    ids, chances = native.block(rows, _LENGTHS, tokens, none, kept, confident=parts.confidence is not None)
    for r, length in enumerate(_LENGTHS):
        own = SlotCache(len(parts.layers), 1, length + width)
        own.plan = CachePlan(0, 1, length, 0)
        features = small.features(states[r])
        small.write_context(features[None], torch.arange(length)[None], own)
        own.plan = CachePlan(0, 1, length + width, length)
        positions, block = torch.arange(length, length + width)[None], torch.tensor(tokens[r])[None]
        hidden = small(small.inputs(block), positions, None, own)
        sampled = small.sampled(small.norm(hidden), _BLOCK)
        if not _close(read[r], sampled[0]) or (parts.walks and not _close(logits[r], small.head(sampled)[0])):
            return False
        if parts.walks:  # other walks run on the block's states, which were just compared
            walk = small.walk(small.norm(hidden), anchors[r : r + 1], features[-1:], _BLOCK)
            if not _walks(walk, anchors[r : r + 1], ids[r], chances[r] if chances else None):
                return False
    return True


def _walks(walk: Any, before: torch.Tensor, ids: Sequence[int], chances: Sequence[float] | None) -> bool:
    """Whether the greedy drafts of a block, and their confidences, are these."""
    choice = torch.zeros_like(before)
    for step, token in enumerate(ids):
        confidence = walk.confidence(step, before)
        scores, columns = walk.row(step, before, choice)
        choice = scores.argmax(-1)
        before = choice if columns is None else columns[..., int(choice)].flatten()
        if int(before) != token or (confidence is None) != (chances is None):
            return False
        if chances is not None and abs(float(confidence) - chances[step]) > 1e-4:
            return False
    return True


def _heads(states: Sequence[torch.Tensor], counts: Sequence[int]) -> list[torch.Tensor]:
    return [s[:n] for s, n in zip(states, counts, strict=True)]


def _recomputed(
    network: DraftNetwork, ids: Sequence[int], states: torch.Tensor, length: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Logits and next feature after ``length`` pairs and after each further draft, all rows computed every time."""
    features, found = network.features(states), []
    for step in range(_MORE + 1):
        count = length + step
        positions = torch.arange(count)[None]
        x = network.inputs(torch.tensor(ids[:count])[None], features[None], positions == 0)
        hidden = network(x, positions, None, None)[0, -1:]
        found.append((network.logits(hidden)[0], network.feedback(hidden)[0]))
        features = torch.cat([features, found[-1][1][None]])
    return found


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def _small(network: DraftNetwork) -> DraftNetwork:
    """A float32 copy whose embedding and head keep their first rows, so that no large matrix is copied."""
    parts = network.parts()
    assert parts is not None
    embed = nn.Embedding.from_pretrained(parts.embed.weight[:_IDS].float())
    head = nn.Linear(parts.head.in_features, min(_HEAD_ROWS, parts.head.out_features), parts.head.bias is not None)
    head.weight.data = parts.head.weight[: head.out_features].float()
    if parts.head.bias is not None:
        head.bias.data = parts.head.bias[: head.out_features].float()
    memo: dict[int, Any] = {id(parts.embed): embed, id(parts.head): head}
    if parts.markov_embed is not None and parts.markov is not None:
        second = nn.Linear(parts.markov.in_features, head.out_features, bias=False)
        second.weight.data = parts.markov.weight[: head.out_features].float()
        memo[id(parts.markov_embed)] = nn.Embedding.from_pretrained(parts.markov_embed.weight[:_IDS].float())
        memo[id(parts.markov)] = second
    if network.to_target is not None:
        memo[id(network.to_target)] = torch.arange(head.out_features) % _IDS
    copied = copy.deepcopy(network, memo).float().eval()
    if getattr(copied, "mask_token_id", None) is not None:
        copied.mask_token_id = 0  # an id that the short embedding has
    return copied
