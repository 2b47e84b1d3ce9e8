"""Between the engine and a speculator: what it is told after a step, and how its drafts return to the requests."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from specdec.engine.requests import Request
from specdec.errors import EngineError
from specdec.model.batch import Batch
from specdec.speculators.base import Drafts, ProposeBatch


def propose_batch(
    batch: Batch,
    keep: Sequence[int],
    wanted: Sequence[int],
    rejected: Sequence[int],
    last: torch.Tensor | None,
    aux: torch.Tensor | None,
) -> ProposeBatch:
    """The requests ``keep`` (indices into the batch) after a verify step.

    ``wanted`` and ``rejected`` are per kept request; ``last`` [R, W, H] and ``aux`` [R, W, A * H] cover the batch.
    """
    kept = [batch.requests[i] for i in keep]
    token_ids: list[int] = []
    positions: list[int] = []
    offsets = [0]
    for i in keep:
        token_ids += batch.tokens[i]
        positions += range(batch.starts[i], batch.starts[i] + batch.counts[i])
        offsets.append(len(token_ids))

    def rows(states: torch.Tensor) -> torch.Tensor:
        flat = batch.flatten(states)
        if len(keep) == len(batch.requests):
            return flat
        parts = flat.split(batch.counts)
        return torch.cat([parts[i] for i in keep])

    lists = {
        "slots": [r.slot for r in kept],
        "num_drafts": wanted,
        "token_ids": token_ids,
        "positions": positions,
        "row_offsets": offsets,
        "num_rejected": rejected,
        "last_sampled": [r.token_ids[-1] if batch.samples[i] else -1 for r, i in zip(kept, keep, strict=True)],
        "temperature": [r.params.temperature for r in kept],
        "seeds": [r.seed for r in kept],
    }
    return ProposeBatch.of_lists(
        lists,
        hidden_states=None if last is None else rows(last),
        aux_hidden_states=None if aux is None else rows(aux),
        device=batch.layout.device,
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
        # a copy: other requests may be drafted for, in the same buffers, before these drafts are verified
        request.draft_logits = None if drafts.logits is None or not row else drafts.logits[r, : len(row)].clone()
        request.confidences = None if confidences is None else confidences[r][: len(row)]


def draft_laws(requests: Sequence[Request]) -> torch.Tensor | None:
    """Draft logits [R, K, V] of requests about to be verified; None when every draft is one-hot."""
    held = [r.draft_logits for r in requests if r.draft_logits is not None]
    if not held:
        return None
    if len(requests) == 1:
        return held[0][None]
    k = max(len(r.drafts) for r in requests)
    size = max(1 + max((t for r in requests for t in r.drafts), default=0), *(law.shape[-1] for law in held))
    # the widest type: rounding a law would verify against another one
    dtype = functools.reduce(torch.promote_types, (law.dtype for law in held))
    laws = held[0].new_full((len(requests), k, size), -torch.inf, dtype=dtype)
    for r, request in enumerate(requests):
        if request.draft_logits is not None:
            count, width = request.draft_logits.shape
            laws[r, :count, :width] = request.draft_logits
        else:
            for step, token in enumerate(request.drafts):  # no law: all on the drafted token
                laws[r, step, token] = 0.0
    return laws
