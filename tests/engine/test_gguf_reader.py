"""The fast reader gives transformers what the reader of the package ``gguf`` gives."""

from __future__ import annotations

import struct

import gguf
import numpy as np
import pytest
from transformers.modeling_gguf_pytorch_utils import _gguf_parse_value, load_gguf_checkpoint

from specdec.model.load.gguf_reader import HeaderReader, fast_gguf

TEXTS = ["", "a", "Grüße", "\u2581\u2581", "x" * 300]
NUMBERS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("u", "")] + ["float32", "float64", "bool"]


@pytest.fixture
def path(tmp_path):
    """A header with every kind of value, and two tensors."""
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TEXTS)
    writer.add_token_scores([0.5, -1.25, 1e30, 0.1, -0.0])
    writer.add_token_types([1, 3, 4, 6, 1])
    writer.add_token_merges([])
    writer.add_array("x.flags", [True, False, True])
    for kind in NUMBERS:
        getattr(writer, f"add_{kind}")(f"x.{kind}", 1)
    writer.add_tensor("token_embd.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.add_tensor("output_norm.weight", np.ones(32, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "x.gguf"


def test_values_and_tensors_are_those_of_the_stock_reader(path):
    stock, fast = gguf.GGUFReader(path), HeaderReader(path)
    assert list(fast.fields) == list(stock.fields)
    for name, field in stock.fields.items():
        other = fast.fields[name]
        assert (other.offset, len(other.data), other.types) == (field.offset, len(field.data), field.types), name
        read = [[_gguf_parse_value(f.parts[i], f.types) for i in f.data] for f in (field, other)]
        assert read[0] == read[1] and list(map(type, read[0])) == list(map(type, read[1])), name
    for tensor, other in zip(stock.tensors, fast.tensors, strict=True):
        assert (other.name, other.tensor_type, other.data_offset) == (
            tensor.name,
            tensor.tensor_type,
            tensor.data_offset,
        )
        assert np.array_equal(other.data, tensor.data) and other.data.dtype == tensor.data.dtype


def test_transformers_reads_the_same_and_the_package_is_as_before(path):
    stock = load_gguf_checkpoint(str(path))
    names = gguf.GGUFReader, gguf.get_tensor_name_map
    with fast_gguf():
        assert gguf.GGUFReader(str(path)) is gguf.GGUFReader(str(path))
        assert load_gguf_checkpoint(str(path)) == stock
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == names
    assert stock["tokenizer"]["tokens"] == TEXTS


@pytest.mark.parametrize("key, replacement", [("tokens", 10**15), ("scores", 10**6), ("token_type", 10**6)])
def test_a_count_that_the_file_cannot_hold_is_an_error(path, key, replacement):
    data = bytearray(path.read_bytes())
    name = f"tokenizer.ggml.{key}".encode()
    struct.pack_into("<Q", data, data.index(name) + len(name) + 8, replacement)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="the file ends inside a list"):
        HeaderReader(path)
