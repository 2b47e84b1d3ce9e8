"""Chain acceptance: how many drafts of each request stand, and what is left to draw after them."""

from __future__ import annotations

import torch

from specdec_kernels.accept import reference
from specdec_kernels.backend import use_triton
from specdec_kernels.draw_plan import DrawPlan


def accept(
    target_logprob: torch.Tensor,  # [N] float32, log p of the draft that each row judges
    target_argmax: torch.Tensor,  # [N] int64
    drafts: torch.Tensor,  # [R, K] int64, -1 = no draft here nor after
    num_drafts: torch.Tensor,  # [R] int32; request r owns rows row_start[r] .. row_start[r] + num_drafts[r]
    row_start: torch.Tensor,  # [R] int32
    temperature: torch.Tensor,  # [R], 0 = greedy
    seeds: torch.Tensor,  # [R] int64
    positions: torch.Tensor,  # [R] int64, of the first token this round may emit
    *,
    draft_logprob: torch.Tensor | None = None,  # [R, K] float32, log q of each draft; None = one-hot
    rates: torch.Tensor | None = None,  # [K] float32, conditional synthetic rates
    target_draw: torch.Tensor | None = None,  # [N] int64, the target's own draws: coupled verification
    backend: str = "auto",
) -> DrawPlan:
    """Accept drafts in order up to the first rejection or placeholder.

    Greedy requests compare with the argmax; else a draft stands if u q < p with its own uniform u, or if u < rate, or
    if it equals the target's own draw. p = 0 always rejects; q = 0 stands if p > 0.
    """
    inputs = (target_logprob, target_argmax, drafts, num_drafts, row_start, temperature, seeds, positions)
    if use_triton(drafts, backend):
        from specdec_kernels.accept import triton as kernel

        return kernel.accept(*inputs, draft_logprob, rates, target_draw)
    return reference.accept(*inputs, draft_logprob, rates, target_draw)
