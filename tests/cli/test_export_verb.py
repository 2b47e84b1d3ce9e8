"""export: flags of other engines, units converted, refusals with their reason, and the way back."""

from __future__ import annotations

import json
import shlex

import pytest

import specdec
from specdec.config.export import engines, export
from specdec.config.export.tables import tables
from specdec.config.records.registry import builtin


def config_for(speculative, **sections):
    document = {"schema_version": 1, "target": {"model": "org/target"}, "speculative": speculative, **sections}
    return specdec.resolve(document).unwrap()


def codes(result):
    return [d.code for d in result.diagnostics if d.severity == "error"]


def test_vllm_command(specdec, project):
    result = specdec("export", "vllm", "run.yaml")
    words = shlex.split(result.out.replace("\\\n", " "))
    assert words[:3] == ["vllm", "serve", "./target"]
    assert words[words.index("--max-model-len") + 1] == "1024"
    spec = json.loads(words[words.index("--speculative-config") + 1])
    assert spec == {"method": "eagle3", "model": "./draft", "num_speculative_tokens": 3}


def test_sglang_counts_the_verify_block(specdec, project):
    out = specdec("export", "sglang", "run.yaml", "--format", "yaml").out
    assert (
        "speculative-num-steps: 3" in out
        and "speculative-num-draft-tokens: 4" in out
        and "speculative-eagle-topk: 1" in out
    )


def test_vllm_settings_pasted_back_resolve_to_the_same_config(specdec, project):
    settings = json.loads(specdec("export", "vllm", "run.yaml", "--format", "json", "--part", "speculative").out)
    import specdec as package

    first = package.resolve(project / "run.yaml").unwrap()
    again = package.resolve(
        {"target": first.source["target"], "engine": first.source["engine"], "speculative": settings}
    ).unwrap()
    assert again.config_hash == first.config_hash


@pytest.mark.parametrize(
    "speculative",
    [
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
        {"method": "suffix"},
        {
            "method": "draft_model",
            "model": "org/d",
            "num_speculative_tokens": 3,
            "draft_sample_method": "probabilistic",
        },
        {"method": "pard", "model": "org/d", "num_speculative_tokens": 3},
        {"method": "eagle", "model": "org/d", "num_speculative_tokens": 2},
        {"method": "peagle", "model": "org/d", "num_speculative_tokens": 4},
        {"method": "mtp", "num_speculative_tokens": 1},
        {"method": "dflash", "model": "org/d", "num_speculative_tokens": 7},
        {"method": "dspark", "model": "org/d", "num_speculative_tokens": 7, "enable_adaptive_verification": True},
    ],
    ids=lambda s: s["method"],
)
def test_round_trip_of_each_method(speculative):
    first = config_for(speculative)
    result = export(first, "vllm")
    assert result.ok, result.diagnostics
    again = config_for(result.settings)
    assert (again.method, again.num_speculative_tokens) == (first.method, first.num_speculative_tokens)
    assert again.config_hash == first.config_hash


@pytest.mark.parametrize("engine", engines())
def test_every_method_is_written_or_refused_with_a_reason(engine):
    for record in builtin().records.values():
        entry = record.engines.get(engine)
        supported = isinstance(entry, dict) or (hasattr(entry, "get") and entry.get("supported", True) is not False)
        if not supported or (hasattr(entry, "get") and entry.get("supported") is False):
            assert hasattr(entry, "get") and entry.get("reason"), (engine, record.name)


def test_what_vllm_ignores_is_refused():
    result = export(
        config_for({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_match": "leftmost"}), "vllm"
    )
    assert codes(result) == ["export-no-effect"]
    assert "ignores" in result.diagnostics[-1].message


def test_values_that_vllm_does_not_know_are_refused():
    speculative = {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "coupled"}
    result = export(config_for(speculative), "vllm")
    assert codes(result) == ["export-no-effect"] and "independent of the drafter" in result.diagnostics[-1].message


def test_methods_that_an_engine_lacks_are_refused():
    result = export(config_for({"method": "medusa", "model": "org/m", "num_speculative_tokens": 3}), "vllm")
    assert codes(result) == ["engine-cannot-run"] and "removed" in result.diagnostics[0].message
    assert codes(export(config_for({"method": "suffix"}), "sglang")) == ["engine-cannot-run"]


def test_v1_and_v2_only_settings_are_a_dead_end():
    result = export(config_for({"method": "suffix", "rejection_sample_method": "block"}), "vllm")
    assert codes(result) == ["export-no-effect"] and "V1" in result.diagnostics[-1].message


def test_sampling_that_vllm_refuses():
    config = config_for({"method": "ngram", "num_speculative_tokens": 4}, sampling={"min_p": 0.1})
    assert codes(export(config, "vllm")) == ["unsupported-sampling-param"]
    assert codes(export(config, "sglang")) == []


@pytest.mark.parametrize(
    ("version", "code", "severity"),
    [
        ("9.9", "untested-engine-version", "warning"),
        ("0.5", "engine-version", "error"),
        ("new", "engine-version", "error"),
    ],
)
def test_versions(version, code, severity):
    result = export(config_for({"method": "ngram", "num_speculative_tokens": 4}), "vllm", version)
    assert [(d.code, d.severity) for d in result.diagnostics] == [(code, severity)]


def test_a_method_newer_than_the_engine():
    config = config_for({"method": "dspark", "model": "org/d", "num_speculative_tokens": 7})
    assert codes(export(config, "vllm", "0.20")) == ["engine-cannot-run"]


def test_bad_configs_do_not_export(specdec, project):
    result = specdec("export", "vllm", "run.yaml", "speculative.num_speculative_tokens=0")
    assert result.code == 1 and result.out == "" and "num_speculative_tokens" in result.err
    assert specdec("export", "vllmm", "run.yaml").code == 2


@pytest.mark.parametrize(
    ("engine", "sections", "args"),
    [
        ("vllm", {"target": {"trust_remote_code": False}}, ["--no-trust-remote-code"]),
        ("sglang", {"target": {"trust_remote_code": False}}, []),  # SGLang's flags have no negative form
        ("vllm", {"engine": {"compile": False}}, ["--enforce-eager"]),
        ("sglang", {"engine": {"compile": False}}, ["--disable-cuda-graph"]),
        ("sglang", {"engine": {"enable_prefix_caching": False}}, ["--disable-radix-cache"]),
        ("sglang", {"engine": {"enable_prefix_caching": True, "compile": True}}, []),
        ("sglang", {"engine": {"max_num_batched_tokens": 2048}}, []),  # what is the default anyway needs no flag
    ],
)
def test_switches_are_spelt_as_the_engine_reads_them(engine, sections, args):
    document = {"target": {"model": "org/target", **sections.get("target", {})}, "engine": sections.get("engine", {})}
    speculative = {"method": "ngram", "num_speculative_tokens": 4}
    result = export(specdec.resolve({**document, "speculative": speculative}).unwrap(), engine)
    assert result.ok and result.args[: len(args)] == args
    assert not [word for word in result.args if word.startswith("--no-")] or engine == "vllm"


def test_a_setting_without_a_flag_is_refused_and_one_of_specdec_is_noted():
    ngram = {"method": "ngram", "num_speculative_tokens": 4}
    assert codes(export(config_for(ngram, engine={"max_num_batched_tokens": 512}), "sglang")) == ["export-no-flag"]
    (note,) = export(config_for(ngram, engine={"device": "cpu"}), "vllm").diagnostics
    assert (note.code, note.severity, note.path) == ("export-no-flag", "note", "engine.device")


def test_the_records_say_what_sglang_reads():
    """An option has a flag in some algorithm exactly when no record calls it ignored or refused there."""
    algorithms = tables()["sglang"]["algorithms"].values()
    flags = {name for algorithm in algorithms for name in algorithm["options"]} | {
        "num_speculative_tokens",
        "model",
        "tree",
    }
    for record in builtin().records.values():
        for option in record.options.values():
            effect = option.engines.get("sglang", "read")
            assert effect.startswith("read") is (option.name in flags), (record.name, option.name)
