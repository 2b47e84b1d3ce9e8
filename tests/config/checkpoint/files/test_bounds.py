"""Hostile files of a checkpoint: one located finding each, soon and with little memory."""

from __future__ import annotations

import json
import os
import struct
import time

import pytest

import specdec

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "vocab_size": 100, "hidden_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 128,
}  # fmt: skip
TEXT = json.dumps(LLAMA)
NINES = "9" * 4000


def header(value, extra=b""):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(raw)) + raw + extra


def entry(shape, offsets):
    return f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}}}'.encode()


CONFIGS = {
    "giant": json.dumps({**LLAMA, "vocab_size": 10**30}), "infinite": TEXT[:-1] + ', "rope_theta": 1e999}',
    "nan": TEXT[:-1] + ', "rope_theta": NaN}', "surrogate": json.dumps({**LLAMA, "model_type": "a\ud800"}),
    "long-list": json.dumps({**LLAMA, "eagle_aux_hidden_state_layer_ids": list(range(200_000))}),
    "deep": '{"a":' + "[" * 900 + "]" * 900 + "}", "deeper": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "many-keys": json.dumps({f"k{i}": i for i in range(200_000)}), "long-key": json.dumps({**LLAMA, "x" * 5000: 1}),
    "digits": '{"vocab_size": ' + "9" * 10_000 + "}", "list": "[1]", "null": "null", "empty": "", "cut": TEXT[:-5],
}  # fmt: skip
WEIGHTS = {
    "empty": b"", "short": b"abc", "announces-too-much": struct.pack("<Q", 2**62) + b"{}", "no-object": header([]),
    "many-digits": header(entry("[" + ",".join([NINES] * 3000) + "]", "[0, 4]")),
    "offsets": header(entry("[1]", f"[{NINES}, {NINES}]")), "negative": header(entry("[-1]", "[0, 4]"), b"0000"),
    "types": header({"a": {"dtype": 5, "shape": "x", "data_offsets": None}}), "zero-length": header({"b": []}),
    "long-name": header({"x" * 5000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"0000"),
    "surrogate": header({"a\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"0000"),
    "many-sides": header({"a": {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]}}, b"0000"),
    "reversed": header(entry("[1]", "[4, 0]"), b"0000"), "nested": header(b"[" * 100_000),
}  # fmt: skip


def findings(role, folder, ok):
    speculative = {"method": "ngram", "num_speculative_tokens": 3}
    if role == "draft":
        speculative = {"method": "eagle3", "model": str(folder), "num_speculative_tokens": 3}
    document = {"target": {"model": str(ok if role == "draft" else folder)}, "speculative": speculative}
    begin = time.process_time()
    resolution = specdec.resolve(document)
    assert time.process_time() - begin < 20  # seconds; a hang is minutes
    return resolution


@pytest.fixture
def ok(tmp_path):
    folder = tmp_path / "ok"
    folder.mkdir()
    (folder / "config.json").write_text(TEXT)
    return folder


def one_finding(resolution):
    (error,) = resolution.errors
    assert resolution.config is None and error.code == "checkpoint-unreadable" and len(error.message) < 400
    return error


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("name", CONFIGS)
def test_configs(role, name, tmp_path, ok):
    (tmp_path / "config.json").write_text(CONFIGS[name], encoding="utf-8", errors="surrogatepass")
    assert "config.json" in one_finding(findings(role, tmp_path, ok)).message


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_safetensors_headers(role, name, tmp_path, ok):
    (tmp_path / "config.json").write_text(TEXT)
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS[name])
    assert "model.safetensors" in one_finding(findings(role, tmp_path, ok)).message


@pytest.mark.parametrize("raw", [b"\xff\xfe{}", b'{"a": "\xc3"}'])
def test_bytes_that_are_no_text(raw, tmp_path, ok):
    (tmp_path / "config.json").write_bytes(raw)
    assert "UTF-8" in one_finding(findings("target", tmp_path, ok)).message


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_pipe_is_no_file(name, tmp_path, ok):
    if name.endswith("safetensors"):
        (tmp_path / "config.json").write_text(TEXT)
    os.mkfifo(tmp_path / name)
    place = tmp_path if name.endswith("safetensors") else tmp_path / name
    assert "no regular file" in one_finding(findings("draft", place, ok)).message


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 10**12}, {"a": -1}, {"a": "x"}, 5, [[]]])
def test_tokenizers(vocab, tmp_path, ok):
    for folder in (tmp_path, ok):
        (folder / "config.json").write_text(TEXT)
        (folder / "tokenizer.json").write_text(
            json.dumps({"model": {"vocab": vocab if folder is tmp_path else {"a": 0}}})
        )
    speculative = {"method": "draft_model", "model": str(tmp_path), "num_speculative_tokens": 3}
    resolution = specdec.resolve({"target": {"model": str(ok)}, "speculative": speculative})
    assert all(len(d.message) < 400 for d in resolution.diagnostics)
    assert [d for d in resolution.diagnostics if "tokenizer" in d.message or "token" in d.code]


def test_a_large_mixture_is_read(tmp_path, ok):
    names = [f"model.layers.{i // 1000}.mlp.experts.{i % 1000}.w" for i in range(80_000)]
    table = {n: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, n in enumerate(names)}
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 80}))
    (tmp_path / "model.safetensors").write_bytes(header(table, bytes(4 * len(names))))
    assert findings("target", tmp_path, ok).config is not None


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads"])
@pytest.mark.parametrize("value", [0, -5])
def test_sizes_of_nothing(key, value):
    speculative = {"method": "ngram", "num_speculative_tokens": 3}
    resolution = specdec.resolve({"speculative": speculative}, target_config={**LLAMA, key: value})
    (error,) = resolution.errors
    assert (error.code, error.path) == ("out-of-range", f"target.{key}") and str(value) in error.message
