"""The flattened rows of a verify forward in plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class VerifyRows:
    """N = sum of (1 + drafts) rows; a request's last token comes first, then its drafts."""

    input_ids: torch.Tensor  # [N] int64, token 0 where a placeholder stands
    positions: torch.Tensor  # [N] int64, absolute position of the input token
    request: torch.Tensor  # [N] int32
    judged: torch.Tensor  # [N] int64, the draft that the row's logits judge; -1 = bonus row or placeholder


def gather_drafts(
    last_tokens: torch.Tensor,
    drafts: torch.Tensor,
    num_drafts: torch.Tensor,
    row_start: torch.Tensor,
    positions: torch.Tensor,
    num_rows: int,
) -> VerifyRows:
    """See the package."""
    rows = []
    for r, n in enumerate(num_drafts.tolist()):
        ids = drafts[r, :n].tolist()
        inputs = [int(last_tokens[r]), *(max(x, 0) for x in ids)]
        assert int(row_start[r]) == len(rows)
        rows += [
            (token, int(positions[r]) - 1 + i, r, judged)
            for i, (token, judged) in enumerate(zip(inputs, [*ids, -1], strict=True))
        ]
    assert len(rows) == num_rows
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    dtypes = (torch.int64, torch.int64, torch.int32, torch.int64)
    return VerifyRows(*(torch.tensor(c, dtype=d, device=drafts.device) for c, d in zip(columns, dtypes, strict=True)))
