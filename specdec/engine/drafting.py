"""Between the engine and a speculator: what it is told after a step, and how its drafts return to the requests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.engine.batch import Batch
from specdec.engine.errors import EngineError
from specdec.engine.requests import Request
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
    device = batch.layout.device
    kept = [batch.requests[i] for i in keep]
    offsets = [0]
    for i in keep:
        offsets.append(offsets[-1] + batch.counts[i])

    def rows(states: torch.Tensor) -> torch.Tensor:
        flat = batch.flatten(states)
        if len(keep) == len(batch.requests):
            return flat
        parts = flat.split(batch.counts)
        return torch.cat([parts[i] for i in keep])

    spans = [range(batch.starts[i], batch.starts[i] + batch.counts[i]) for i in keep]

    return ProposeBatch(
        slots=torch.tensor([r.slot for r in kept], device=device),
        num_drafts=torch.tensor(list(wanted), device=device),
        token_ids=torch.tensor([token for i in keep for token in batch.tokens[i]], device=device),
        positions=torch.tensor([position for span in spans for position in span], device=device),
        row_offsets=torch.tensor(offsets, device=device),
        num_rejected=torch.tensor(list(rejected), device=device),
        last_sampled=torch.tensor(
            [r.token_ids[-1] if batch.samples[i] else -1 for r, i in zip(kept, keep, strict=True)], device=device
        ),
        temperature=torch.tensor([float(r.params.temperature) for r in kept], device=device),
        seeds=torch.tensor([r.seed for r in kept], device=device),
        hidden_states=None if last is None else rows(last),
        aux_hidden_states=None if aux is None else rows(aux),
    )


def hand_out(drafts: Drafts, requests: Sequence[Request], wanted: Sequence[int], vocab_size: int) -> None:
    """Give each request its drafts: up to ``wanted``, and none behind the first -1.

    Raises ``EngineError`` when a speculator breaks its contract.
    """
    if drafts.token_ids.shape[0] != len(requests):
        raise EngineError(f"a speculator drafted for {drafts.token_ids.shape[0]} requests instead of {len(requests)}")
    confidences = None if drafts.confidences is None else drafts.confidences.tolist()
    for r, (request, row) in enumerate(zip(requests, drafts.token_ids.tolist(), strict=True)):
        row = row[: wanted[r]]
        if -1 in row:
            row = row[: row.index(-1)]
        bad = [token for token in row if not 0 <= token < vocab_size]
        if bad:
            raise EngineError(f"a speculator drafted token {bad[0]}; the target's ids are 0 to {vocab_size - 1}")
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
    laws = held[0].new_full((len(requests), k, size), -torch.inf)
    for r, request in enumerate(requests):
        if request.draft_logits is not None:
            count, width = request.draft_logits.shape
            laws[r, :count, :width] = request.draft_logits
        else:
            for step, token in enumerate(request.drafts):  # no law: all on the drafted token
                laws[r, step, token] = 0.0
    return laws
