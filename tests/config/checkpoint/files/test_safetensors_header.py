"""Headers of safetensors files: names and shapes, and a clear fault for every kind of damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.safetensors_header import read_header, read_integers


def file_bytes(header: Any, data: bytes = b"") -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_names_shapes_and_values(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    header = {
        "__metadata__": {"format": "pt"},
        "d2t": entry("I64", [3], 0, 24),
        "fc.weight": entry("BF16", [2, 3], 24, 36),
    }
    path.write_bytes(file_bytes(header, struct.pack("<3q", 0, 1, -3) + bytes(12)))
    entries = read_header(path)
    assert {n: e.shape for n, e in entries.items()} == {"d2t": (3,), "fc.weight": (2, 3)}
    assert read_integers(entries["d2t"]) == (0, 1, -3)
    assert read_integers(entries["fc.weight"]) is None


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "too short"),
        (b"abc", "too short"),
        (struct.pack("<Q", 10**12) + b"{}", "announces a header"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "not valid JSON"),
        (file_bytes([]), "not a JSON object"),
        (file_bytes({"a": {"dtype": "F32"}}), "lacks a valid"),
        (file_bytes({"a": entry("F32", [-1], 0, 4)}, bytes(4)), "lacks a valid"),
        (file_bytes({"a": entry("F32", [4], 0, 16)}, bytes(8)), "truncated"),
        (file_bytes({"a": entry("F32", [3], 0, 16)}, bytes(16)), "does not fill"),
        (file_bytes({"a": 3}), "lacks a valid"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointFault, match=word):
        read_header(path)


def test_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFault, match="cannot be read"):
        read_header(tmp_path / "none.safetensors")


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 300))
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, garbage: bytes, cut: int) -> None:
    good = file_bytes({"a": entry("F32", [2], 0, 8), "b": entry("I8", [1], 8, 9)}, bytes(9))
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    for content in (garbage, good[:cut] + garbage, good[: min(cut, len(good))]):
        path.write_bytes(content)
        try:
            entries = read_header(path)
        except CheckpointFault:
            continue
        assert all(e.end <= len(content) for e in entries.values())


@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "dtype", "shape", "data_offsets"]), x, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_no_json_header_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, header: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz_json.safetensors"
    path.write_bytes(file_bytes(header, bytes(16)))
    try:
        read_header(path)
    except CheckpointFault as fault:
        assert str(fault)
