"""Draft checkpoints are read whole or refused with the file, the tensor and the shapes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from specdec.drafts.errors import DraftError
from specdec.drafts.weights import Weights

TENSORS = {"model.a": torch.arange(6.0).reshape(2, 3), "midlayer.b": torch.tensor([1, -2]), "c": torch.ones(3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def test_takes_each_tensor_by_its_common_name(folder: Path) -> None:
    weights = Weights(str(folder), dtype=torch.bfloat16)
    assert set(weights) == {"a", "layers.0.b", "c"}
    assert weights.take("a", (2, 3)).dtype == torch.bfloat16
    assert torch.equal(weights.take("layers.0.b"), TENSORS["midlayer.b"])  # integers keep their type
    assert weights.rest() == ["c"]
    with pytest.raises(DraftError, match="tensor c has no place"):
        weights.finish()
    weights.ignore("c")
    weights.finish()


@pytest.mark.parametrize("stored", [torch.float64, torch.float16, torch.bool, torch.uint8, torch.int32])
def test_reads_what_was_stored(folder: Path, stored: torch.dtype) -> None:
    values = torch.randint(0, 2, (5, 7)).to(stored)
    save_file({"x": values, "scalar": torch.tensor(3.5), "none": torch.empty(0, 4)}, folder / "model.safetensors")
    weights = Weights(str(folder))
    assert torch.equal(weights.take("x"), values)
    assert weights.take("scalar").item() == 3.5 and weights.take("none").shape == (0, 4)


def test_reads_shards_by_their_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    index = {}
    for number, (name, value) in enumerate(TENSORS.items()):
        save_file({name: value}, tmp_path / f"part-{number}.safetensors")
        index[name] = f"part-{number}.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(Weights(str(tmp_path)).take("a"), TENSORS["model.a"])
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(DraftError, match=r"missing: part-1\.safetensors"):
        Weights(str(tmp_path))


def test_leaves_tensors_of_others(folder: Path) -> None:
    weights = Weights(str(folder), rename=lambda name: name.removeprefix("model.") if "model." in name else None)
    weights.take("a")
    weights.finish()


def test_fills_a_module_on_the_meta_device(folder: Path) -> None:
    save_file({"up.weight": torch.ones(2, 3), "up.bias": torch.zeros(2)}, folder / "model.safetensors")
    with torch.device("meta"):
        module = nn.ModuleDict({"up": nn.Linear(3, 2), "extra": nn.Linear(3, 2)})
    with pytest.raises(DraftError, match=r"no tensor extra\.weight and 1 more"):
        Weights(str(folder)).fill(module)
    module["extra"] = nn.Linear(3, 2)  # real already: somebody else's
    Weights(str(folder)).fill(module)
    assert module["up"](torch.ones(1, 3)).tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("absent", "does not exist"),
        ("no weights", "no weights|no safetensors weights"),
        ("pickle", "is a pickle"),
        ("truncated", "truncated"),
        ("garbled", "not valid JSON|announces a header"),
        ("twice", "both read as a"),
        ("float8", "F8_E4M3; quantized drafts"),
    ],
)
def test_refuses_what_it_cannot_read(folder: Path, damage: str, says: str) -> None:
    file = folder / "model.safetensors"
    location = str(folder)
    if damage == "absent":
        location = str(folder / "elsewhere")
    elif damage == "no weights":
        file.unlink()
    elif damage == "pickle":
        file.rename(folder / "pytorch_model.bin")
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:-4])
    elif damage == "garbled":
        file.write_bytes(b"\xff" * 200)
    elif damage == "twice":
        save_file({"a": torch.ones(1), "model.a": torch.ones(1)}, file)
    else:
        save_file({"a": torch.ones(2).to(torch.float8_e4m3fn)}, file)
    with pytest.raises(DraftError, match=says) as raised:
        Weights(location).take("a")
    assert re.search(re.escape(folder.name) + "|model.safetensors|pytorch_model.bin", str(raised.value))


def test_says_which_tensor_is_missing_or_misshapen(folder: Path) -> None:
    weights = Weights(str(folder))
    with pytest.raises(DraftError, match=r"model\.safetensors: tensor model\.a has shape \[2, 3\].* needs \[3, 2\]"):
        weights.take("a", (3, 2))
    with pytest.raises(DraftError, match=r"has no tensor fc\.weight, which the draft needs"):
        weights.take("fc.weight")


def test_a_file_that_shrinks_after_the_header_was_read(folder: Path) -> None:
    weights = Weights(str(folder))
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(DraftError, match="truncated"):
        for name in weights:
            weights.take(name)
