"""Numbers that are lists until someone asks for a tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec.speculators.base import Drafts, Step
from specdec.verify import Verifier

COLUMNS = {
    "slots": [2, 0], "num_drafts": [3, 0], "token_ids": [5, 6, 7], "positions": [8, 9, 4], "row_offsets": [0, 2, 3],
    "num_rejected": [1, 0], "last_sampled": [9, -1], "next_token": [9, 4], "finished": [False, True], "temperature": [0.8, 0.0], "seeds": [1, 2**62],
}  # fmt: skip


def test_a_batch_of_lists_reads_like_one_of_tensors():
    batch = Step.of_lists(COLUMNS)
    assert batch.host("slots") is COLUMNS["slots"]
    assert "slots" not in vars(batch)
    for name, numbers in COLUMNS.items():
        kind = {"temperature": torch.float32, "finished": torch.bool}.get(name, torch.int64)
        assert (
            torch.equal(getattr(batch, name), torch.tensor(numbers, dtype=kind)) and getattr(batch, name).dtype == kind
        )
    assert batch.slots is batch.slots and batch.states is None


def test_a_batch_of_tensors_gives_lists():
    tensors = {name: torch.tensor(numbers) for name, numbers in COLUMNS.items()}
    batch = Step(**tensors)
    assert batch.host("token_ids") == [5, 6, 7] and batch.token_ids is tensors["token_ids"]
    with pytest.raises(TypeError, match="missing"):
        Step(slots=torch.tensor([0]))


@pytest.mark.parametrize("of_lists", [True, False])
def test_other_numbers_of_drafts(of_lists):
    tensors = {name: torch.tensor(numbers) for name, numbers in COLUMNS.items()}
    batch = Step.of_lists(COLUMNS) if of_lists else Step(**tensors)
    assert batch.num_drafts.tolist() == [3, 0]
    other = batch.only([0, 1], [0, 1])
    assert other.num_drafts.tolist() == other.host("num_drafts") == [0, 1]
    assert other.slots.tolist() == [2, 0] and batch.host("num_drafts") == [3, 0]
    last = batch.only([1], [2])
    assert last.token_ids.tolist() == [7] and last.positions.tolist() == [4] and last.row_offsets.tolist() == [0, 1]
    assert (last.slots.tolist(), last.num_drafts.tolist(), last.finished.tolist()) == ([0], [2], [True])
    assert replace(batch, num_drafts=torch.tensor([4, 4])).host("num_drafts") == [4, 4]


def test_drafts_of_rows_are_padded_and_end_at_minus_one():
    drafts = Drafts.of_lists({"token_ids": [[1, 2], []], "confidences": [[0.5, 0.25], []]}, width=3)
    assert drafts.token_ids.tolist() == [[1, 2, -1], [-1, -1, -1]]
    assert drafts.confidences.tolist() == [[0.5, 0.25, 0.0], [0.0, 0.0, 0.0]]
    assert drafts.rows() == [[1, 2], []]
    assert Drafts.of_lists({"token_ids": []}).token_ids.shape == (0, 0)
    tensor = Drafts(torch.tensor([[3, -1, 4], [5, 6, 7]]))
    assert tensor.rows() == [[3], [5, 6, 7]]
    assert tensor.confidences is None and tensor.host("confidences") is None


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_verifier_takes_rows_of_any_length(temperature):
    x = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    inputs = {"temperature": [temperature] * 3, "seeds": [1, 2, 3], "positions": [4, 5, 6], "num_drafts": [2, 0, 1]}
    rows = [[7, 8], [], [9]]
    of_rows = Verifier()(x, rows, **inputs)
    of_tensor = Verifier()(x, torch.tensor([[7, 8], [-1, -1], [9, -1]]), **inputs)
    assert torch.equal(of_rows.token_ids, of_tensor.token_ids) and of_rows.token_ids.shape == (3, 3)
    assert of_rows.host("num_sampled") == of_tensor.num_sampled.tolist()
    assert of_rows.invalid.dtype == torch.bool
