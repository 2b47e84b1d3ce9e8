"""What is left to draw for each request once its drafts are judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class Kind(IntEnum):
    """The law of the token that follows the accepted drafts."""

    PLAIN = 0  # the target's law
    ONE_HOT = 1  # the target's law without `token`
    DIFFERENCE = 2  # max(rho * p - q, 0)
    FIXED = 3  # no draw: it is `token`


@dataclass(frozen=True)
class DrawPlan:
    """One draw for each of R requests."""

    num_accepted: torch.Tensor  # [R] int32
    kind: torch.Tensor  # [R] int32, a Kind
    token: torch.Tensor  # [R] int64, the token of ONE_HOT and FIXED
    rho: torch.Tensor  # [R] float32, the scale of DIFFERENCE
