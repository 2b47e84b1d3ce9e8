"""Values on their way to another engine: none turns into a flag, none changes its type."""

from __future__ import annotations

import argparse
import json
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import specdec
from specdec.config.export import export
from specdec.config.export.encode import Flag, json_text, shell, words, yaml_text
from specdec.config.export.values import unknown_value
from specdec.config.read.source import parse

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cc", "Cs")), max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


def exported(engine="vllm", version=None, **sections):
    document = {"target": {"model": "org/target"}, "speculative": NGRAM}
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    return export(specdec.resolve(document).unwrap(), engine, version)


@given(st.lists(printable, max_size=5))
def test_words_survive_a_shell(values):
    command = ["vllm", *words(Flag(f"--flag-{i}", value) for i, value in enumerate(values))]
    assert shlex.split(shell(command).replace("\\\n", " ")) == command


@given(printable)
def test_a_value_is_never_read_as_a_flag(value):
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tokenizer")
    parser.add_argument("--trust-remote-code", action="store_true")
    read = parser.parse_args(words([Flag("--tokenizer", value)]))
    assert (read.tokenizer, read.trust_remote_code) == (value, False)


@given(st.dictionaries(printable, printable | numbers | st.lists(printable | numbers, max_size=3), max_size=5))
def test_both_versions_of_yaml_and_json_keep_types(data):
    text = yaml_text(data)
    for read in (yaml.safe_load(text) or {}, json.loads(json_text(data))):
        assert read == data and [type(v) for v in read.values()] == [type(v) for v in data.values()]
    ours = parse(text).data or {}
    assert ours == data and [type(v) for v in ours.values()] == [type(v) for v in data.values()]


@pytest.mark.parametrize(
    "text", ["007", "1e3", "0o7", "12:30", "yes", "null", "~", "--x", "1_000", "0x1F", "on", ".5", ""]
)
def test_text_that_looks_like_something_else_stays_text(text):
    document = {"tokenizer": text}
    assert yaml.safe_load(yaml_text(document)) == document == parse(yaml_text(document)).data


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["model", "revision", "tokenizer", "quantization"])
def test_flags_cannot_be_smuggled_in(engine, name):
    result = exported(engine, target={name: "--trust-remote-code"})
    words_ = [*result.command, *result.args]
    assert "--trust-remote-code" not in words_
    if result.ok:
        assert any(w in ("./--trust-remote-code",) or w.endswith("=--trust-remote-code") for w in words_)


@pytest.mark.parametrize("section, name", [("target", "revision"), ("target", "model"), ("speculative", "model")])
def test_control_characters_are_refused(section, name):
    other = {"speculative": {"method": "eagle", "num_speculative_tokens": 2}} if section == "speculative" else {}
    other.setdefault(section, {})[name] = "a\n--enable-foo"
    result = exported(**other)
    assert [d.code for d in result.diagnostics if d.severity == "error"] == ["export-unsafe-value"]
    assert result.diagnostics[0].path == f"{section}.{name}"


def test_whole_files_name_the_model_and_keep_types():
    target = {"tokenizer": "007", "trust_remote_code": False, "max_model_len": 512}
    vllm = yaml.safe_load(yaml_text(exported(target=target).document))
    assert vllm == {
        "model": "org/target", "tokenizer": "007", "trust-remote-code": False, "max-model-len": 512,
        "speculative-config": {**NGRAM, "prompt_lookup_max": 5, "prompt_lookup_min": 5},
    }  # fmt: skip
    sglang = exported("sglang", target={"tokenizer": "--x"}).document
    assert sglang["model-path"] == "org/target" and sglang["tokenizer-path"] == "--x"
    assert sglang["speculative-num-draft-tokens"] == 5


@pytest.mark.parametrize(
    "engine, version, kind, value, known",
    [
        ("vllm", None, "quantization", "fp8_online", False),
        ("vllm", None, "quantization", "mxfp8", True),
        ("vllm", "0.26", "quantization", "bitsandbytes", True),
        ("vllm", None, "quantization", "bitsandbytes", False),
        ("vllm", None, "attention_backend", "flash_attn", True),
        ("vllm", None, "attention_backend", "FLASH_ATTENTION", False),
        ("vllm", "0.28", "moe_backend", "b12x", False),
        ("vllm", "0.30", "moe_backend", "b12x", True),
        ("sglang", None, "attention_backend", "fa3", True),
        ("sglang", None, "attention_backend", "FLASH_ATTN", False),
        ("sglang", None, "draft_attention_backend", "flashmla", False),
    ],
)
def test_names_by_version(engine, version, kind, value, known):
    wrong = unknown_value(engine, kind, value, version)
    assert (wrong is None) is known
    assert wrong is None or (repr(value) in wrong[0] and (version or "") in wrong[0])


def test_unknown_names_are_refused_wherever_they_stand():
    for sections in (
        {"target": {"quantization": "fp8_online"}},
        {"target": {"attention_backend": "TRITON"}},
        {"speculative": {"method": "eagle3", "model": "org/d", "attention_backend": "nope"}},
        {"speculative": {"method": "mtp", "moe_backend": "nope", "num_speculative_tokens": 1}},
    ):
        result = exported(**sections)
        assert [d.code for d in result.diagnostics if d.severity == "error"] == ["export-no-effect"], sections


def test_whole_blocks_where_a_version_demands_them():
    draft = {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 4, "mask_token_id": 5,
             "target_layer_ids": [1, 2], "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1}  # fmt: skip
    document = {"target": {"model": "org/t"}, "speculative": {"method": "dspark", "model": "org/d"}}
    short = specdec.resolve(document, ["speculative.num_speculative_tokens=5"], draft_config=draft).unwrap()
    for version, fine in (("0.26", False), ("0.27.1", False), ("0.28", True), ("0.33", True)):
        errors = [d for d in export(short, "vllm", version).diagnostics if d.severity == "error"]
        assert (not errors) is fine, (version, errors)
        assert all(version in d.message and "7" in d.message for d in errors)


def test_what_nobody_set_is_no_reason_to_refuse():
    target = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1, "index_share_for_mtp_iteration": True}
    config = specdec.resolve(
        {"speculative": {"method": "mtp", "num_speculative_tokens": 1}}, target_config=target
    ).unwrap()
    for engine in ("vllm", "sglang"):
        assert export(config, engine).ok
