"""Between the engine and a speculator: what it is told after a step, and how its drafts return to the requests."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from specdec.engine.requests import Request
from specdec.errors import EngineError
from specdec.model.batch import Batch
from specdec.speculators.base import Drafts, Needs, States, Step
from specdec.verify.draft_laws import candidate_logits, full_logits


def settled_step(
    batch: Batch, rejected: Sequence[int], needs: Needs, last: torch.Tensor | None, aux: torch.Tensor | None
) -> Step:
    """What a forward settled, for all its requests; nobody wants drafts yet.

    ``rejected``: trailing rows of each request that do not hold; ``last`` [R, W, H] and ``aux`` [R, W, A * H] are of
    the batch's rows. ``needs`` says which boundaries ``aux`` holds.
    """
    requests, token_ids, positions, offsets = batch.requests, [], [], [0]
    for tokens, start in zip(batch.tokens, batch.starts, strict=True):
        token_ids += tokens
        positions += range(start, start + len(tokens))
        offsets.append(len(token_ids))
    sampled = [
        r.token_ids[-1] if samples and r.error is None else -1
        for r, samples in zip(requests, batch.samples, strict=True)
    ]
    following = [
        r.token_ids[r.num_computed] if token < 0 and r.num_computed < len(r.token_ids) else token
        for r, token in zip(requests, sampled, strict=True)
    ]
    lists = {
        "slots": [r.slot for r in requests],
        "num_drafts": [0] * len(requests),
        "token_ids": token_ids,
        "positions": positions,
        "row_offsets": offsets,
        "num_rejected": list(rejected),
        "last_sampled": sampled,
        "next_token": following,
        "finished": [r.finished for r in requests],
        "temperature": [r.params.temperature for r in requests],
        "seeds": [r.seed for r in requests],
    }
    states = None
    if last is not None or aux is not None:
        flat = [None if t is None else batch.flatten(t) for t in (last, aux)]
        states = States(flat[0], flat[1], needs.boundaries)
    return Step.of_lists(
        lists, states=states, device=batch.layout.device, batch_size=sum(not r.finished for r in requests)
    )


def hand_out(drafts: Drafts, requests: Sequence[Request], wanted: Sequence[int], vocab_size: int) -> None:
    """Give each request its drafts: up to ``wanted``, and none behind the first -1.

    Raises ``EngineError`` when a speculator breaks its contract.
    """
    rows, confidences = drafts.rows(), drafts.host("confidences")
    if len(rows) != len(requests):
        raise EngineError(f"a speculator drafted for {len(rows)} requests instead of {len(requests)}")
    for r, (request, row) in enumerate(zip(requests, rows, strict=True)):
        row = row[: wanted[r]]
        if row and not (min(row) >= 0 and max(row) < vocab_size):
            bad = next(token for token in row if not 0 <= token < vocab_size)
            raise EngineError(f"a speculator drafted token {bad}; the target's ids are 0 to {vocab_size - 1}")
        request.drafts = row
        request.draft_logits = None if drafts.logits is None or not row else drafts.logits[r, : len(row)]
        if request.draft_logits is not None and not drafts.logits_stay:
            # other requests may be drafted for, in the same buffers, before these drafts are verified
            request.draft_logits = request.draft_logits.clone()
        request.confidences = None if confidences is None else confidences[r][: len(row)]
        request.drafts_free = drafts.free is not None and drafts.free[r]


def draft_laws(requests: Sequence[Request]) -> torch.Tensor | None:
    """Draft logits [R, K, V] of requests about to be verified; None when every draft is one-hot."""
    held = [r.draft_logits for r in requests if r.draft_logits is not None]
    if not held:
        return None
    if len(requests) == 1:
        return full_logits(held[0][None])
    k = max(len(r.drafts) for r in requests)
    size = max(1 + max((t for r in requests for t in r.drafts), default=0), *(law.shape[-1] for law in held))
    # the widest type: rounding a law would verify against another one
    dtype = functools.reduce(torch.promote_types, (law.dtype for law in held))
    device = candidate_logits(held[0]).device
    laws = torch.full((len(requests), k, size), -torch.inf, dtype=dtype, device=device)
    for r, request in enumerate(requests):
        if request.draft_logits is not None:
            count, width = request.draft_logits.shape
            laws[r, :count, :width] = full_logits(request.draft_logits)
        else:
            for step, token in enumerate(request.drafts):  # no law: all on the drafted token
                laws[r, step, token] = 0.0
    return laws
