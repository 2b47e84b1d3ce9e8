"""Files of hidden states: their layouts, as the trainers' loaders read them, and what a killed process leaves."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from specdec.model.state_shards import LAYOUTS, Sample, StateFolder, StateShardError

FACTS = {"target": "tiny", "boundaries": [1, 3], "dtype": "float32"}
LAYOUT_NAMES = sorted(LAYOUTS)


def sample(count: int, seed: int = 0) -> Sample:
    torch.manual_seed(seed)
    mask = [0] * (count // 2) + [1] * (count - count // 2)
    return Sample(list(range(count)), mask, torch.randn(count, 2, 4), torch.randn(count, 4))


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_the_speculators_layout(tmp_path):
    """hs_{i}.safetensors: token_ids [S], hidden_states [S, A, H]; the last of A is the target's last state."""
    one = sample(5)
    path = StateFolder(tmp_path, "speculators", FACTS).write(7, one)
    assert path == tmp_path / "hidden_states" / "hs_7.safetensors"
    held = load_file(path)
    assert held["token_ids"].tolist() == one.token_ids and held["token_ids"].dtype == torch.int64
    assert held["loss_mask"].tolist() == one.loss_mask
    assert torch.equal(held["hidden_states"], one.states)
    row = {"index": 7, "file": "hidden_states/hs_7.safetensors", "seq_len": 5}
    assert lines(tmp_path) == [{**row, "input_ids": one.token_ids, "loss_mask": one.loss_mask}]


def test_the_specforge_layout(tmp_path):
    """data_{i}.ckpt below rows_{a}-{b}: input_ids, loss_mask [S], hidden_state [1, S, H], aux_hidden_state [1, S, A * H]."""
    one = sample(5)
    path = StateFolder(tmp_path, "specforge", FACTS).write(5003, one)
    assert path == tmp_path / "rows_5000-10000" / "data_5003.ckpt"
    held = torch.load(path, weights_only=True)
    assert held["input_ids"].tolist() == one.token_ids and held["loss_mask"].tolist() == one.loss_mask
    assert torch.equal(held["hidden_state"], one.last[None])
    assert torch.equal(held["aux_hidden_state"], one.states.flatten(1)[None])


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_a_later_run_goes_on_where_the_first_ended(tmp_path, layout):
    first = StateFolder(tmp_path, layout, FACTS)
    for index in (0, 2):
        first.write(index, sample(index + 1, index))
    with pytest.raises(StateShardError, match="is being written by another run"):
        StateFolder(tmp_path, layout, FACTS)
    first.close()
    again = StateFolder(tmp_path, layout, FACTS)
    assert sorted(again.done) == [0, 2] and again.next_index == 3
    assert again.token_ids(2) == [0, 1, 2]


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_what_a_killed_run_left_is_mended(tmp_path, layout):
    """A part of a file, a file that the list lacks, and a line that was cut off."""
    first = StateFolder(tmp_path, layout, FACTS)
    paths = [first.write(i, sample(i + 2, i)) for i in range(3)]
    first.close()
    listed = lines(tmp_path)
    part = paths[0].with_name(".hs_3.safetensors.part")
    part.write_bytes(b"half")
    text = (tmp_path / "samples.jsonl").read_text()
    (tmp_path / "samples.jsonl").write_text(text[: text.rindex("\n", 0, -1) + 20])
    again = StateFolder(tmp_path, layout, FACTS)
    assert not part.exists() and sorted(again.done) == [0, 1, 2]
    assert lines(tmp_path) == listed
    paths[1].unlink()
    again.close()
    assert sorted(StateFolder(tmp_path, layout, FACTS).done) == [0, 2]
    assert [row["index"] for row in lines(tmp_path)] == [0, 2]


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"boundaries": [1, 2]}, "boundaries is [1, 3] there and [1, 2] now"), ({"dtype": "bfloat16"}, "'bfloat16' now"),
     ({"more": 1}, "more is None there")],
)  # fmt: skip
def test_states_of_another_kind_are_refused(tmp_path, changed, says):
    StateFolder(tmp_path, "speculators", FACTS).close()
    with pytest.raises(StateShardError) as caught:
        StateFolder(tmp_path, "speculators", {**FACTS, **changed})
    assert says in str(caught.value) and "manifest.json" in str(caught.value)


def test_a_damaged_file_is_named(tmp_path):
    folder = StateFolder(tmp_path, "speculators", FACTS)
    folder.write(0, sample(3)).write_bytes(b"nothing")
    with pytest.raises(StateShardError, match=r"hs_0\.safetensors cannot be read: .*remove it to make it again"):
        folder.token_ids(0)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateShardError, match="file"):
        StateFolder(tmp_path / "file", "speculators", FACTS)


def test_states_that_are_not_finite_are_seen():
    assert sample(3).is_finite
    for name in ("states", "last"):
        one = sample(3)
        getattr(one, name)[1, 0] = torch.nan
        assert not one.is_finite
