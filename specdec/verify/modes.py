"""The verification modes by name, with what each promises and reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from specdec.verify import laws
from specdec.verify.round import Round
from specdec.verify.rules.block import block
from specdec.verify.rules.coupled import coupled
from specdec.verify.rules.fly import fly
from specdec.verify.rules.greedy import greedy
from specdec.verify.rules.standard import standard
from specdec.verify.rules.synthetic import synthetic

Rule = Callable[[Round], list[int]]


class Kernel(Enum):
    """Which kernel judges the drafts on a device."""

    CHAIN = "chain"
    BLOCK = "block"
    COUPLED = "coupled"


@dataclass(frozen=True)
class Mode:
    """One way to verify."""

    rule: Rule  # for requests with temperature > 0
    greedy_rule: Rule = greedy  # for requests with temperature 0
    lossless: bool = True
    reads_draft_laws: bool = True  # False: drafts count as one-hot even when their logits are known
    couples_drafts: bool = False  # drafting should use the target's own noise
    kernel: Kernel | None = None  # how the device pipeline judges; None = only the eager form exists
    rates: tuple[float, ...] | None = None  # conditional acceptance rates that replace the test


def _synthetic(rates: Any = None, length: float | None = None, k: int | None = None) -> Mode:
    if (rates is None) == (length is None):
        raise ValueError("synthetic acceptance needs exactly one of rates and length; give one of them")
    if rates is None:
        if k is None:
            raise ValueError("synthetic acceptance by length needs k; pass k = num_speculative_tokens")
        if not 1 <= length <= k + 1:  # type: ignore[operator]
            raise ValueError(f"synthetic acceptance length {length} is outside [1, {k + 1}]; choose one inside")
        rates = laws.rates_for_length(float(length), k)  # type: ignore[arg-type]
    rates = tuple(float(x) for x in rates)
    if any(not 0 <= x <= 1 for x in rates) or any(b > a for a, b in pairwise(rates)):
        raise ValueError(f"synthetic acceptance rates {list(rates)} must lie in [0, 1] and not increase")
    rule = synthetic(rates)
    conditional = tuple(laws.conditional_rates(rates))
    return Mode(rule, rule, lossless=False, reads_draft_laws=False, kernel=Kernel.CHAIN, rates=conditional)


def _fly(window: int | None = None, entropy_threshold: float = 0.3, entropy_top_k: int = 3) -> Mode:
    if window is not None and window < 1:
        raise ValueError(f"fly window {window} must be at least 1; leave it out for min(6, k - 1)")
    if entropy_threshold < 0 or entropy_top_k < 1:
        raise ValueError("fly needs entropy_threshold >= 0 and entropy_top_k >= 1")
    rule = fly(window, entropy_threshold, entropy_top_k)
    return Mode(rule, lossless=False)


_FACTORIES: Mapping[str, Callable[..., Mode]] = {
    "standard": lambda: Mode(standard, kernel=Kernel.CHAIN),
    "block": lambda: Mode(block, kernel=Kernel.BLOCK),
    "coupled": lambda: Mode(coupled, reads_draft_laws=False, couples_drafts=True, kernel=Kernel.COUPLED),
    "synthetic": _synthetic,
    "fly": _fly,
}
MODES = tuple(_FACTORIES)


def make_mode(name: str, **options: Any) -> Mode:
    """The mode of this name.

    Options: ``synthetic`` takes rates=[...] (unconditional, per position) or length= with k=; ``fly`` takes window,
    entropy_threshold and entropy_top_k. Raises ValueError for an unknown name, option or value.
    """
    if name not in _FACTORIES:
        raise ValueError(f"unknown verification mode {name!r}; choose one of {', '.join(MODES)}")
    try:
        return _FACTORIES[name](**options)
    except TypeError as error:
        raise ValueError(f"verification mode {name!r} does not take these options: {', '.join(options)}") from error
