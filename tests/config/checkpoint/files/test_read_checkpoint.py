"""Where checkpoints are found and how they are opened: every fault is one finding, never a traceback."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.config.checkpoint import Checkpoint, compare_tokenizers, load_checkpoint
from specdec.config.checkpoint.files.errors import CheckpointFault

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4}


def write_weights(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def only_finding(location: str | Path, role: Any = "draft") -> Any:
    checkpoint, findings = load_checkpoint(location, role=role)
    assert checkpoint is None and len(findings) == 1
    return findings[0]


def test_a_directory_with_weights(folder: Path) -> None:
    offsets = struct.pack("<4q", 0, 1, 3, 3)
    write_weights(folder / "model.safetensors", {"fc.weight": ("F32", [1, 2], bytes(8)), "d2t": ("I64", [4], offsets)})
    checkpoint, findings = load_checkpoint(folder, role="draft")
    assert checkpoint is not None and not findings
    assert checkpoint.config == CONFIG and checkpoint.tensors == {"fc.weight": (1, 2), "d2t": (4,)}
    assert checkpoint.vocab_map("d2t") == (0, 1, 3, 3) and checkpoint.vocab_map("t2d") is None
    assert checkpoint.weight_bytes == 40 and checkpoint.tensor_dtypes["fc.weight"] == "F32"


def test_the_config_alone(folder: Path) -> None:
    for location in (folder, folder / "config.json", str(folder)):
        checkpoint, findings = load_checkpoint(location, role="target")
        assert checkpoint is not None and checkpoint.tensors is None
        assert all(f.severity == "note" for f in findings)


def test_a_sharded_checkpoint(folder: Path) -> None:
    write_weights(folder / "model-1.safetensors", {"a": ("F32", [1], bytes(4))})
    write_weights(folder / "model-2.safetensors", {"b": ("F16", [2], bytes(4))})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    for location in (folder, index):
        checkpoint, _ = load_checkpoint(location, role="draft")
        assert checkpoint is not None and checkpoint.tensors == {"a": (1,), "b": (2,)}
    (folder / "model-2.safetensors").unlink()
    for location in (folder, index):
        assert "model-2.safetensors" in only_finding(location).message


def test_an_index_that_is_left_over_from_shards(folder: Path) -> None:
    write_weights(folder / "model.safetensors", {"a": ("F32", [1], bytes(4))})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"b": "model-1.safetensors"}}))
    checkpoint, _ = load_checkpoint(folder, role="draft")
    assert checkpoint is not None and checkpoint.tensors == {"a": (1,)}


@pytest.mark.parametrize(
    ("index", "word"),
    [({}, "weight_map"), ({"weight_map": {"a": 3}}, "weight_map"), ({"weight_map": {"a": "../../x"}}, "outside")],
)
def test_a_bad_index(folder: Path, index: dict[str, Any], word: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert word in only_finding(folder).message


def test_the_same_tensor_twice(folder: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_weights(folder / name, {"x": ("F32", [1], bytes(4))})
    assert "twice" in only_finding(folder).message


@pytest.mark.parametrize("name", ["pytorch_model.bin", "medusa_lm_head.pt"])
def test_pickles_are_refused_with_the_way_out(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\x80\x02")
    for location in (folder, folder / name):
        finding = only_finding(location)
        assert finding.code == "pickle-weights" and name in finding.message and "save_file" in finding.fix


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"{", "1:2"),
        (b"[]", "object"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_damaged_config(tmp_path: Path, text: bytes, word: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    finding = only_finding(tmp_path)
    assert finding.severity == "error" and finding.path == "speculative.model" and word in finding.message


def test_places_without_a_checkpoint(tmp_path: Path) -> None:
    assert only_finding(tmp_path).code == "checkpoint-without-config"
    assert only_finding(tmp_path / "none", "target").path == "target.model"
    assert only_finding("x\0y").code == "checkpoint-not-found"
    (tmp_path / "notes.txt").write_text("hello")
    assert only_finding(tmp_path / "notes.txt").code == "checkpoint-unreadable"


def test_a_hub_id_is_looked_up_in_the_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    finding = only_finding("some-org/some-head")
    assert (finding.code, finding.severity) == ("checkpoint-not-cached", "note")
    snapshot = tmp_path / "models--some-org--some-head" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    checkpoint, _ = load_checkpoint("some-org/some-head", role="draft")
    assert checkpoint is not None and checkpoint.config == CONFIG
    assert load_checkpoint("some-org/some-head", role="draft", revision="abc")[0] is not None
    assert load_checkpoint("some-org/some-head", role="draft", revision="v2")[0] is None


def test_tokenizers_are_read_when_asked_for(folder: Path) -> None:
    data = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2, "content": "<x>"}]}
    (folder / "tokenizer.json").write_text(json.dumps(data))
    checkpoint, _ = load_checkpoint(folder, role="draft")
    assert checkpoint is not None and checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.tokens == {0: "a", 1: "b", 2: "<x>"} and checkpoint.tokenizer.added == {2}
    (folder / "tokenizer.json").write_text('{"model": 3}')
    broken, _ = load_checkpoint(folder, role="draft")
    assert broken is not None
    with pytest.raises(CheckpointFault, match=r"tokenizer\.json"):
        _ = broken.tokenizer


@pytest.mark.parametrize(
    ("target", "draft", "agreement", "first"),
    [
        (["a", "b"], ["a", "b"], "identical", None),
        (["a", "b", "c"], ["a", "b"], "extended", 2),
        (["a", "b"], ["x", "b"], "different", 0),
        (["a", "b", "c"], ["a", "x"], "different", 1),
        (["a"], None, "unknown", None),
    ],
)
def test_tokenizers_compared(target: Any, draft: Any, agreement: str, first: int | None) -> None:
    sides = [None if t is None else Checkpoint.from_parts({"tokens": t}).tokenizer for t in (target, draft)]
    comparison = compare_tokenizers(*sides)
    assert (comparison.agreement, comparison.first_difference) == (agreement, first)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_no_config_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_bytes(text)
    checkpoint, findings = load_checkpoint(path, role="draft")
    assert (checkpoint is None) == any(f.severity == "error" for f in findings)


def test_inspection_imports_no_torch() -> None:
    code = "import sys, specdec.config.checkpoint; print([m for m in ('torch', 'transformers', 'numpy', 'gguf') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_git_lfs_pointer_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text("version https://git-lfs/spec/v1\noid sha256:1\nsize 12\n")
    checkpoint, findings = load_checkpoint(tmp_path, role="draft")
    assert checkpoint is None
    assert [d.code for d in findings] == ["git-lfs-pointer"]
    assert name in findings[0].message
