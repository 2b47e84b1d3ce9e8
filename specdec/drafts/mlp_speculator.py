"""The MLP speculator: a chain of small steps, each from the last token and the state that the step before left.

Source: arXiv 2404.19124. Format: ``speculator.{emb,proj,ln,head}.{i}.weight`` and ``speculator.ln.{i}.bias``.
"""

from __future__ import annotations

import math
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

_PREFIX = "speculator."
_EPS = 1e-6


class MLPSpeculatorDraft(DraftNetwork):
    """``n_predict`` steps ``s = gelu(norm_i(proj_i(s) + r emb_i(token)))``, ``logits = head_i(s)``.

    ``r`` weighs token against state so that their sum keeps its variance as ``n_predict`` steps follow each other; it
    is the trained number of steps that counts, however few are drafted. Tied weights are one module for all steps,
    the first projection excepted.
    """

    num_layers = 0

    def __init__(
        self, n_predict: int, vocab_size: int, state_size: int, inner_size: int, *, tied: bool, scales_input: bool
    ) -> None:
        super().__init__()
        self.n_predict, self.vocab_size, self.feature_size = n_predict, vocab_size, state_size
        self.inner_size, self.scales_input = inner_size, scales_input
        count = 1 if tied else n_predict
        self.emb = nn.ModuleList(nn.Embedding(vocab_size, inner_size) for _ in range(count))
        self.proj = nn.ModuleList(
            nn.Linear(inner_size if i else state_size, inner_size, bias=False)
            for i in range(min(2, n_predict) if tied else n_predict)
        )
        self.ln = nn.ModuleList(nn.LayerNorm(inner_size) for _ in range(count))  # its weights; see ``forward``
        self.head = nn.ModuleList(nn.Linear(inner_size, vocab_size, bias=False) for _ in range(count))
        state_weight = 0.5 ** (0.5 / n_predict)
        self.token_ratio = math.sqrt((1 - state_weight**2) * inner_size / 2) / state_weight

    def features(self, states: torch.Tensor) -> torch.Tensor:
        """States [N, S], normed and halved in variance where the checkpoint was trained so."""
        return _norm(states) / math.sqrt(2) if self.scales_input else states

    def inputs(
        self, token_ids: torch.Tensor, features: torch.Tensor, first: torch.Tensor | None = None, step: int = 0
    ) -> torch.Tensor:
        """[N, inner]: what step ``step`` sees of the last token [N] and of the state [N, S or inner] before it."""
        return _of(self.proj, step)(features) + self.token_ratio * _of(self.emb, step)(token_ids)

    def forward(
        self, x: torch.Tensor, positions: Any = None, mask: Any = None, cache: Any = None, step: int = 0
    ) -> Any:
        norm = _of(self.ln, step)
        return functional.gelu(_norm(x) * norm.weight + norm.bias)

    def logits(self, hidden: torch.Tensor, step: int = 0) -> torch.Tensor:
        return _of(self.head, step)(hidden)

    @classmethod
    def load(cls, config: SpeculativeConfig, target: TargetHandle) -> Self:
        draft = config.draft
        location = str(config.get("draft.model") or config.get("options.model"))
        dtype = resolve_dtype(config.get("draft.dtype") or "auto") or target.dtype
        weights = Weights(location, rename=lambda name: name.removeprefix(_PREFIX), dtype=dtype, device=target.device)
        tied, inner = bool(draft.get("tie_weights")), draft.get("inner_dim") or target.hidden_size
        with torch.device("meta"):
            network = cls(
                draft["n_predict"], target.vocab_size, target.hidden_size, inner,
                tied=tied, scales_input=bool(draft.get("scale_input")),
            )  # fmt: skip
        weights.fill(network)
        if tied:
            _check_tied(weights, network)
        weights.finish()
        return network


def _of(modules: nn.ModuleList, step: int) -> Any:
    """The module of a step; the last one serves all that follow."""
    return modules[min(step, len(modules) - 1)]


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Divided by its root mean square; no mean is taken off."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + _EPS)


def _check_tied(weights: Weights, network: MLPSpeculatorDraft) -> None:
    """Copies of tied tensors, which some files store, must be copies."""
    for stored in [name for name in weights if name.count(".") == 2]:
        kind, step, leaf = stored.split(".")
        modules = getattr(network, kind, None)
        if not isinstance(modules, nn.ModuleList) or not step.isdecimal() or int(step) < len(modules):
            continue
        if int(step) >= network.n_predict or not torch.equal(weights.take(stored), getattr(modules[-1], leaf)):
            raise DraftError(
                f"{weights.location}: tensor {stored} is not that of the steps before, but the config.json says "
                "tie_weights; use the config.json that was saved with these weights"
            )
