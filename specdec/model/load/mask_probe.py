"""Whether a target follows the masks and positions it is given: tried once, for classes that do not declare it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from specdec.errors import TargetError
from specdec.model.batch import build_batch
from specdec.model.kv_cache import SlotCache

if TYPE_CHECKING:
    from specdec.model.target import Target

TOKENS = ((3, 1, 4, 1, 5, 9, 2, 6), (2, 7, 1))  # two requests of different lengths
LAST = 2  # tokens of the second forward, over cached ones
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}  # in standard deviations of the logits
COARSE = 0.2  # for 16-bit types; a wrong mask is off by about 1


@dataclass
class _Sequence:
    slot: int
    token_ids: list[int]
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def num_pending(self) -> int:
        return len(self.token_ids) - self.num_computed


def check_masks(target: Target) -> None:
    """Run two requests in shared forwards and each alone; raises ``TargetError`` where the logits differ."""
    own = next((name for name, buffer in target.model.named_buffers() if buffer.dim() == 4), None)
    problem = f"it keeps a mask of its own ({own})" if own else _difference(target)
    if problem is not None:
        does = (
            "mixes the states of tokens and requests" if target.layout.recurrent else "computes its own attention masks"
        )
        raise TargetError(
            f"{type(target.model).__name__} {does}, so requests of different lengths cannot "
            f"share a forward: {problem}; run it with `specdec export vllm`"
        )


@torch.inference_mode()
def _difference(target: Target) -> str | None:
    """What goes wrong when requests share a forward, or None."""
    prompts = [[token % target.vocab_size for token in row] for row in TOKENS]
    requests = [_Sequence(slot, prompt[:-LAST]) for slot, prompt in enumerate(prompts)]
    cache = SlotCache(target.layout.num_layers, len(requests), 2 * len(TOKENS[0]))
    for request in requests:
        cache.acquire(request.slot)
    try:
        _forward(target, cache, requests)
        for request, prompt in zip(requests, prompts, strict=True):
            request.token_ids += prompt[-LAST:]
        together = _forward(target, cache, requests)
        alone = [target.model(torch.tensor([p], device=target.device), use_cache=False).logits[0, -1] for p in prompts]
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError) as error:
        return (str(error) or type(error).__name__).splitlines()[0]
    for ours, theirs in zip(together, alone, strict=True):
        apart = float((ours.float() - theirs.float()).abs().max() / theirs.float().std())
        if not apart <= TOLERANCE.get(target.dtype, COARSE):
            return f"the logits of a request differ by {apart:.2g} standard deviations from those it has alone"
    return None


def _forward(target: Target, cache: SlotCache, requests: list[_Sequence]) -> Any:
    """Logits [R, V] of each request's last token."""
    logits = target.logits(build_batch(cache, target.layout, requests, len(TOKENS[0]), target.dtype))
    for request in requests:
        request.num_computed = len(request.token_ids)
    return logits
