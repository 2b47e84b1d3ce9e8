"""Draws of draft tokens, from exactly the law that verification will hold against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from specdec_kernels.backend import use_triton
from specdec_kernels.categorical import categorical
from specdec_kernels.philox import words

from specdec.verify.noise import Role
from specdec.verify.row_law import RowLaw


@dataclass(frozen=True)
class DrawnDrafts:
    """One draft token for each of R requests."""

    token_ids: torch.Tensor  # [R] int64
    probs: torch.Tensor | None  # [R] float32, q of the drawn token; None where a kernel drew and did not say


def draw_drafts(
    logits: torch.Tensor,  # [R, V], before temperature; store these very values for verification
    *,
    temperature: Sequence[float] | torch.Tensor,  # [R], 0 = argmax
    seeds: Sequence[int] | torch.Tensor,  # [R]
    starts: Sequence[int] | torch.Tensor,  # [R]: position of the first token that the coming round may emit
    step: int,  # 0 for the first draft
    coupled: bool = False,
    gumbel: bool = False,
    backend: str = "auto",
) -> DrawnDrafts:
    """Draw draft number ``step`` of every request.

    ``coupled`` draws with the target's own noise at that position, for ``Verifier("coupled")`` with the same kind of
    draw (``gumbel`` makes both sides agree most often); never use it with another mode.
    """
    role, slot = (Role.TARGET, 0) if coupled else (Role.DRAFT, step + 1)
    if use_triton(logits, backend):
        device = logits.device
        seeds_, starts_ = (torch.as_tensor(x, device=device).long() for x in (seeds, starts))
        t = torch.as_tensor(temperature, device=device).float()
        slots = torch.full_like(seeds_, slot)
        ids = categorical(logits, t, seeds_, starts_ + step, slots, role, gumbel=gumbel, backend=backend)
        return DrawnDrafts(ids, None)
    columns = [x.tolist() if isinstance(x, torch.Tensor) else x for x in (temperature, seeds, starts)]
    tokens, probs = [], []
    for row, t, seed, start in zip(logits, *columns, strict=True):
        law = RowLaw(row, float(t))
        key = (int(seed), int(start) + step, slot, int(role))
        if law.invalid or t == 0:
            token = law.argmax()
        else:
            token = law.draw_gumbel(key) if gumbel else law.draw(words.uniform(*key))
        tokens.append(token)
        probs.append(1.0 if t == 0 else law.prob(token))
    device = logits.device
    return DrawnDrafts(torch.tensor(tokens, device=device), torch.tensor(probs, dtype=torch.float64, device=device))
