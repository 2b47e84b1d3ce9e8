"""The entry of verification: target logits and drafts of a batch in, emitted tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from specdec_kernels.backend import use_triton

from specdec.verify.columns import Column, Columns, padded
from specdec.verify.draft_laws import DenseDraftLogits, DraftLaws, dense_logits
from specdec.verify.eager_round import EagerRound
from specdec.verify.modes import Mode, make_mode
from specdec.verify.noise import NoiseLedger, RoundNoise
from specdec.verify.row_law import is_finite
from specdec.verify.row_tops import row_tops


@dataclass(frozen=True)
class Verified(Columns):
    """What one round emits for R requests; ``host("token_ids")`` gives lists without making tensors."""

    # [R, K + 1]: accepted drafts, then one token of the target; -1 beyond num_sampled
    token_ids: torch.Tensor = Column(torch.int64, fill=-1)
    num_sampled: torch.Tensor = Column(torch.int64)  # [R], accepted drafts + 1
    invalid: torch.Tensor = Column(torch.bool)  # [R]: a row that was read had no finite logit, its token is meaningless
    width: int | None = None  # K + 1 where the tokens are given as rows
    device: torch.device | None = None


class Verifier:
    """Verifies drafts of a batch in one mode; also the plain sampler, with K = 0.

    ``mode`` and ``mode_options``: see ``make_mode``. ``draw``: "inverse_cdf" takes one uniform per draw, "gumbel" noise
    per token (slower, independent of the order of the vocabulary, and what couples sampled drafts best).
    ``backend``: "auto" (Triton on CUDA, PyTorch elsewhere), "torch" or "triton". ``ledger`` records noise keys.
    """

    def __init__(
        self,
        mode: str = "standard",
        *,
        draw: str = "inverse_cdf",
        backend: str = "auto",
        ledger: NoiseLedger | None = None,
        **mode_options: Any,
    ) -> None:
        if draw not in ("inverse_cdf", "gumbel"):
            raise ValueError(f"unknown draw {draw!r}; choose inverse_cdf or gumbel")
        self.mode: Mode = make_mode(mode, **mode_options)
        self.gumbel = draw == "gumbel"
        self.backend = backend
        self.ledger = ledger

    def __call__(
        self,
        target_logits: torch.Tensor,  # [N, V]: rows of request r follow each other, 1 + num_drafts[r] of them
        draft_ids: torch.Tensor | Sequence[Sequence[int]],  # [R, K] int64; -1 = no draft here nor after; or ragged rows
        *,
        temperature: Sequence[float] | torch.Tensor,  # [R], 0 = greedy
        seeds: Sequence[int] | torch.Tensor,  # [R] int64
        positions: Sequence[int] | torch.Tensor,  # [R]: absolute position of the first token this round may emit
        num_drafts: Sequence[int] | torch.Tensor | None = None,  # [R], rows - 1; default: K, or what is not -1
        draft_laws: DraftLaws | torch.Tensor | None = None,  # None = one-hot; a tensor [R, K, V'] = dense logits
    ) -> Verified:
        """Verify one round.

        ``target_logits`` are before temperature and after penalties and masks (-inf = forbidden); any float dtype, any
        row stride. A draft that the target forbids must keep its id: replacing it by -1 after looking at it is
        lossless only for one-hot drafts. Raises ValueError when shapes disagree.
        """
        num_requests = len(draft_ids)
        for name, values in (("temperature", temperature), ("seeds", seeds), ("positions", positions)):
            if len(values) != num_requests:
                raise ValueError(f"{name} has {len(values)} values for {num_requests} requests; give one per request")
        if self.mode.kernel is not None and self.ledger is None and use_triton(target_logits, self.backend):
            return self._on_device(target_logits, draft_ids, num_drafts, draft_laws, temperature, seeds, positions)
        if not isinstance(draft_ids, torch.Tensor) and not any(draft_ids) and target_logits.shape[0] == num_requests:
            return self._without_drafts(target_logits, _listed(temperature), _listed(seeds), _listed(positions))
        drafts, counts, k = _drafts_and_counts(target_logits, draft_ids, num_drafts)
        temperature, seeds, positions = _listed(temperature), _listed(seeds), _listed(positions)
        if isinstance(draft_laws, torch.Tensor):
            draft_laws = DenseDraftLogits(draft_laws)
        if not self.mode.reads_draft_laws:
            draft_laws = None
        tops = row_tops(target_logits)
        rows: list[list[int]] = []
        invalid: list[bool] = []
        begin = 0
        for r in range(num_requests):
            round_ = EagerRound(
                target_logits,
                tops,
                begin,
                drafts[r],
                float(temperature[r]),
                RoundNoise(int(seeds[r]), int(positions[r]), self.ledger),
                draft_laws,
                r,
                self.gumbel,
            )
            rule = self.mode.rule if temperature[r] > 0 else self.mode.greedy_rule
            emitted = rule(round_)
            invalid.append(round_.invalid(len(emitted)))
            rows.append(emitted)
            begin += 1 + counts[r]
        lists = {"token_ids": rows, "num_sampled": [len(row) for row in rows], "invalid": invalid}
        return Verified.of_lists(lists, width=k + 1, device=target_logits.device)

    def _without_drafts(
        self, logits: torch.Tensor, temperature: list[float], seeds: list[int], positions: list[int]
    ) -> Verified:
        """The target's own draw in each row [R, V], which is what every rule emits when nothing was drafted."""
        tops = row_tops(logits)
        rows: list[list[int]] = []
        invalid: list[bool] = []
        for r, (maximum, token) in enumerate(zip(*tops, strict=True)):
            if temperature[r] > 0 or not is_finite(maximum):
                noise = RoundNoise(int(seeds[r]), int(positions[r]), self.ledger)
                round_ = EagerRound(logits, tops, r, (), float(temperature[r]), noise, None, r, self.gumbel)
                token = round_.draw_target(0)
                invalid.append(round_.invalid(1))
            else:
                invalid.append(False)
            rows.append([token])
        lists = {"token_ids": rows, "num_sampled": [1] * len(rows), "invalid": invalid}
        return Verified.of_lists(lists, width=1, device=logits.device)

    def _on_device(
        self,
        target_logits: torch.Tensor,
        draft_ids: torch.Tensor | Sequence[Sequence[int]],
        num_drafts: Sequence[int] | torch.Tensor | None,
        draft_laws: DraftLaws | torch.Tensor | None,
        temperature: Any,
        seeds: Any,
        positions: Any,
    ) -> Verified:
        from specdec.verify.device_round import verify_on_device

        if not isinstance(draft_ids, torch.Tensor):
            draft_ids = padded(draft_ids, -1, torch.int64, target_logits.device)
        dense = dense_logits(draft_laws) if self.mode.reads_draft_laws else None
        inputs = (num_drafts, temperature, seeds, positions)
        return Verified(
            *verify_on_device(self.mode, target_logits, draft_ids, dense, *inputs, self.gumbel, self.backend)
        )


def _listed(values: Sequence[Any] | torch.Tensor) -> list[Any]:
    return values.tolist() if isinstance(values, torch.Tensor) else list(values)


def _drafts_and_counts(
    target_logits: torch.Tensor,
    draft_ids: torch.Tensor | Sequence[Sequence[int]],
    num_drafts: Sequence[int] | torch.Tensor | None,
) -> tuple[list[Sequence[int]], list[int], int]:
    """Real drafts of each request (up to the first -1), the drafted rows each request owns, and K."""
    num_rows, is_tensor = target_logits.shape[0], isinstance(draft_ids, torch.Tensor)
    ids: Sequence[Sequence[int]]
    if isinstance(draft_ids, torch.Tensor):
        ids, k = draft_ids.tolist(), draft_ids.shape[1]
    else:
        ids, k = draft_ids, max(map(len, draft_ids), default=0)
    real = [row[: row.index(-1)] if -1 in row else row for row in ids]
    if num_drafts is not None:
        counts = [int(n) for n in _listed(num_drafts)]
    elif is_tensor and num_rows == len(ids) * (k + 1):
        counts = [k] * len(ids)
    else:
        counts = [len(row) for row in real]
    if len(counts) != len(ids) or any(not 0 <= n <= k for n in counts) or num_rows != sum(counts) + len(counts):
        raise ValueError(
            f"{num_rows} target rows for {len(ids)} requests with {counts} drafts; each needs num_drafts + 1 rows"
        )
    return [row[:n] for row, n in zip(real, counts, strict=True)], counts, k


def verify(target_logits: torch.Tensor, draft_ids: torch.Tensor, *, mode: str = "standard", **inputs: Any) -> Verified:
    """Verify one round in ``mode`` with default settings; inputs as in ``Verifier.__call__``."""
    return Verifier(mode)(target_logits, draft_ids, **inputs)
