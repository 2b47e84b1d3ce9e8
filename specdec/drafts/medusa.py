"""Medusa heads: head i guesses the token i + 2 places behind a state's, from that state alone.

Source: arXiv 2401.10774. Formats: FasterDecoding ``{i}.{j}.linear.weight`` and ``{i}.{n}.weight`` (alone, or merged into
the target's checkpoint as ``medusa_head.{i}...``), and vLLM's former ``blocks.{i}.layers.{j}.weight`` with
``lm_heads.{i}.weight`` or one shared ``lm_head.weight``, and ``token_map``. Heads and blocks are counted in the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from torch.nn import functional

from specdec.drafts.errors import DraftError
from specdec.drafts.network import DraftNetwork
from specdec.drafts.weights import Weights
from specdec.model.target import resolve_dtype

if TYPE_CHECKING:
    from specdec.config.final.speculative_config import SpeculativeConfig
    from specdec.model.handle import TargetHandle

_PREFIX = re.compile(r"medusa_(?:lm_)?heads?\.")
# how the formats write a name -> the network's own
_NAMES = [
    (re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)"), r"blocks.\1.\2.\3"),
    (re.compile(r"(\d+)\.\d+\.weight"), r"lm_heads.\1.weight"),
    (re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)"), r"blocks.\1.\2.\3"),
    (re.compile(r"(?:original_)?lm_head\.weight"), "lm_head.weight"),
]
_OWN = re.compile(r"blocks\.(\d+)\.(\d+)\.(?:weight|bias)|lm_heads\.(\d+)\.weight|token_map")


class MedusaDraft(DraftNetwork):
    """K heads, each some residual blocks ``x + silu(W x + b)`` and a linear layer over the (draft) vocabulary.

    Args:
        blocks: per head its residual blocks, linear layers [H, H].
        heads: per head a linear layer [V_d, H] without bias; one alone serves all.
        to_target: [V_d] the target's id of each row of a head; None = the same ids.
    """

    num_layers = 0

    def __init__(
        self,
        blocks: Sequence[Sequence[nn.Linear]],
        heads: Sequence[nn.Linear],
        to_target: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleList(head) for head in blocks)
        self.lm_heads = nn.ModuleList(heads)
        self.num_heads, self.vocab_size, self.feature_size = len(blocks), *heads[0].weight.shape
        self.to_target = to_target

    def inputs(self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """The features: no head looks at a token."""
        return features

    def forward(
        self, x: torch.Tensor, positions: Any = None, mask: Any = None, cache: Any = None, step: int = 0
    ) -> Any:
        """What the blocks of head ``step`` make of states [..., H]."""
        for block in self.blocks[step]:  # type: ignore[union-attr]
            x = x + functional.silu(block(x))
        return x

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        return self.lm_heads[min(step, len(self.lm_heads) - 1)](hidden)

    def all_logits(self, states: torch.Tensor, k: int) -> torch.Tensor:
        """Logits [n, k, V_d] of the first ``k`` heads on the same states [n, H]."""
        hidden = [self(states, step=step) for step in range(k)]
        if len(self.lm_heads) == 1:  # one product instead of k
            return self.lm_heads[0](torch.stack(hidden, dim=1))
        return torch.stack([self.logits(rows, step) for step, rows in enumerate(hidden)], dim=1)

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        """The heads of ``config.draft.model``; the target's LM head where the checkpoint stores none."""
        prefixed: list[str] = []

        def rename(stored: str) -> str:
            name = _PREFIX.sub("", stored, count=1)
            if name != stored:
                prefixed.append(name)
            for pattern, own in _NAMES:
                if pattern.fullmatch(name):
                    return pattern.sub(own, name)
            return name

        location = str(config.get("draft.model") or config.get("options.model"))
        dtype = resolve_dtype(config.get("draft.dtype") or "auto") or target.dtype
        weights = Weights(location, rename=rename, dtype=dtype, device=target.device)
        network = cls._of(weights, target, bool(config.get("draft.original_lm_head")))
        if prefixed:  # the rest of such a checkpoint is the model that the heads were merged into
            weights.ignore(*[name for name in weights if not _OWN.fullmatch(name)])
        weights.finish()
        return network

    @classmethod
    def _of(cls, weights: Weights, target: TargetHandle, shares_head: bool) -> Self:
        found = [match for name in weights if (match := _OWN.fullmatch(name))]
        count = 1 + max((int(m[1] or m[3]) for m in found if m[1] or m[3]), default=-1)
        if count == 0:
            raise DraftError(
                f"{weights.location} holds no Medusa head; its tensors have other names than those formats"
            )
        depth = 1 + max((int(m[2]) for m in found if m[2]), default=-1)
        biased = any(m[0].endswith("bias") for m in found)
        size = target.hidden_size

        def linear(name: str, shape: tuple[int, int] | None, bias: bool) -> nn.Linear:
            weight = weights.take(f"{name}.weight", shape)
            return _linear(weight, weights.take(f"{name}.bias", (size,)) if bias else None)

        blocks = [[linear(f"blocks.{i}.{j}", (size, size), biased) for j in range(depth)] for i in range(count)]
        stored = [m[3] for m in found if m[3]]
        if stored and not shares_head:
            heads = [linear(f"lm_heads.{i}", None, False) for i in range(count)]
        elif stored:
            heads = [linear(f"lm_heads.{min(stored)}", None, False)]
        else:
            heads = [linear("lm_head", None, False)] if "lm_head.weight" in weights else [target.lm_head]
        to_target = weights.take("token_map") if "token_map" in weights else None
        if to_target is not None:
            _check_map(weights.location, to_target, target.vocab_size)
            heads = [_restricted(head, to_target) for head in heads]
        rows = target.vocab_size if to_target is None else len(to_target)
        for i, head in enumerate(heads):
            if tuple(head.weight.shape) != (rows, size):
                raise DraftError(
                    f"{weights.location}: head {i} has shape {list(head.weight.shape)}, but this target needs "
                    f"{[rows, size]}; use the heads that were trained for it"
                )
        return cls(blocks, heads, to_target)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A linear layer around tensors as they are."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


def _restricted(head: nn.Module, rows: torch.Tensor) -> nn.Module:
    """A head that covers the whole vocabulary, cut to the rows of the map."""
    weight: Any = head.weight
    return head if len(weight) <= len(rows) else _linear(weight[rows], None)


def _check_map(location: str, to_target: torch.Tensor, vocab_size: int) -> None:
    ids = to_target.tolist()
    outside = [i for i in ids if not 0 <= i < vocab_size]
    if outside or len(set(ids)) != len(ids):
        fault = f"id {outside[0]}, and the target's are 0 to {vocab_size - 1}" if outside else "an id twice"
        raise DraftError(f"{location}: token_map holds {fault}; use the checkpoint as it was trained")
