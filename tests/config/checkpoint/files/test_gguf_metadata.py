"""GGUF files become the keys and tensor names of a safetensors checkpoint."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.config.checkpoint import detect
from specdec.config.checkpoint.files import gguf_metadata
from specdec.config.checkpoint.files.errors import CheckpointFault
from specdec.config.checkpoint.files.gguf_metadata import read_gguf
from specdec.config.checkpoint.files.read import load_checkpoint
from specdec.config.records.registry import builtin


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def item(key: str, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def tiny_gguf() -> bytes:
    """A llama of two layers, hidden size 64, by the letter of the format."""
    numbers = {"block_count": 2, "embedding_length": 64, "context_length": 256, "feed_forward_length": 128,
               "attention.head_count": 4, "attention.head_count_kv": 2}  # fmt: skip
    items = [item("general.architecture", 8, text("llama"))]
    items += [item(f"llama.{key}", 4, struct.pack("<I", value)) for key, value in numbers.items()]
    items.append(item("llama.rope.freq_base", 6, struct.pack("<f", 500000.0)))
    items.append(item("llama.rope.scaling.type", 8, text("yarn")))
    items.append(item("llama.rope.scaling.factor", 6, struct.pack("<f", 4.0)))
    tokens = ["<s>", "</s>", "a", "b", "c", "d", "e", "f"]
    items.append(item("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + b"".join(map(text, tokens))))
    shapes = {"token_embd.weight": (64, 8), "output_norm.weight": (64,), "blk.0.attn_q.weight": (64, 64),
              "blk.1.attn_k.weight": (64, 32), "blk.1.ffn_down.weight": (128, 64)}  # fmt: skip
    tensors = b"".join(
        text(name)
        + struct.pack("<I", len(dims))
        + b"".join(struct.pack("<Q", d) for d in dims)
        + struct.pack("<IQ", 0, 0)
        for name, dims in shapes.items()
    )
    return b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(items)) + b"".join(items) + tensors + bytes(4096)


def test_config_tensors_and_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    checkpoint, findings = load_checkpoint(path, role="draft")
    assert checkpoint is not None and not findings
    config = checkpoint.config
    assert (config["hidden_size"], config["num_hidden_layers"], config["num_key_value_heads"]) == (64, 2, 2)
    assert config["vocab_size"] == 8 and config["tie_word_embeddings"] is True
    assert config["rope_theta"] == 500000.0 and config["rope_scaling"] == {"rope_type": "yarn", "factor": 4.0}
    assert checkpoint.tensors is not None
    assert checkpoint.tensors["model.embed_tokens.weight"] == (8, 64)
    assert checkpoint.tensors["model.layers.1.self_attn.k_proj.weight"] == (32, 64)
    assert checkpoint.tensors["model.layers.1.mlp.down_proj.weight"] == (64, 128)
    assert checkpoint.tokenizer is not None and checkpoint.tokenizer.tokens[2] == "a"
    assert checkpoint.file_format == "gguf"
    found = detect(builtin(), checkpoint)
    assert found.record == "draft_model" and found.fallback


def test_a_file_written_by_the_gguf_package(tmp_path: Path) -> None:
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(16)
    writer.add_head_count(2)
    writer.add_token_list(["x", "y", "z"])
    writer.add_tensor("token_embd.weight", numpy.zeros((3, 16), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    contents = read_gguf(path)
    assert contents.metadata["llama.embedding_length"] == 16
    assert list(contents.metadata["tokenizer.ggml.tokens"]) == ["x", "y", "z"]
    assert contents.tensors == {"token_embd.weight": (3, 16)}


def test_texts_are_read_only_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across the chunks in which they are stepped over, and with a text longer than a chunk."""
    monkeypatch.setattr(gguf_metadata, "_CHUNK", 16)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    assert read_gguf(path).tensors["blk.1.ffn_down.weight"] == (64, 128)
    texts = ["short", "", "x" * 100, "end"]
    items = item("many", 9, struct.pack("<IQ", 8, len(texts)) + b"".join(map(text, texts))) + item(
        "after", 4, b"\7\0\0\0"
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + items)
    metadata = read_gguf(path).metadata
    assert metadata["after"] == 7 and len(metadata["many"]) == 4
    assert list(metadata["many"]) == texts and metadata["many"][2:] == texts[2:]
    again = read_gguf(path).metadata["many"]
    path.write_bytes(b"GGUF" + bytes(8))
    with pytest.raises(CheckpointFault, match="truncated"):
        list(again)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "ends inside"),
        (b"GGML" + bytes(20), "magic"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + item("k", 77, b"") + bytes(50), "unknown type"),
        (tiny_gguf()[:300], "truncated"),
        (tiny_gguf()[:450], "truncated"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + item("k", 9, struct.pack("<IQQ", 8, 2, 2**63)) + bytes(50),
            "truncated",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + item("k", 9, struct.pack("<IQQ", 8, 1, 2**63)), "truncated"),
    ],
)
def test_damage_is_one_finding(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    checkpoint, findings = load_checkpoint(path, role="draft")
    assert checkpoint is None
    assert [f.severity for f in findings] == ["error"] and word in findings[0].message


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 900), st.binary(max_size=60))
def test_no_damage_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, at: int, garbage: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    good = tiny_gguf()
    path.write_bytes(good[:at] + garbage + good[at + len(garbage) : 1200])
    try:
        read_gguf(path)
    except CheckpointFault as fault:
        assert str(fault)
