"""Laws of ``resolve`` that hold for every configuration: no exception, no dependence on paths, environment or order."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import specdec
from specdec.config.final.speculative_config import Resolution, plain
from specdec.config.read.source import parse
from specdec.config.records.registry import builtin

DRAFT_CONFIGS = sorted((Path(__file__).parents[2] / "fixtures" / "draft_configs").glob("*.json"))
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32, "vocab_size": 128, "hidden_size": 64}
TARGET = {"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 8}

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=2)
    | st.just(object()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
OPTION_NAMES = sorted({name for record in builtin().records.values() for name in record.options} | {"method"})
METHODS = [*builtin().records, *(alias.name for _, alias in builtin().aliases.values()), "nonsense", None]
FACT_NAMES = sorted(
    {
        key
        for facts in builtin().fact_sets.values()
        for fact in facts.values()
        for key in fact.keys
        if ":" not in key and "." not in key
    }
)


def codes(result: Resolution) -> set[str]:
    return {d.code for d in result.errors}


def check_shape(result: Resolution) -> None:
    """What holds for every outcome."""
    assert (result.config is None) == bool(result.errors)
    seen = [(d.code, d.path) for d in result.diagnostics if d.path]
    assert len(seen) == len(set(seen)), "a finding is reported twice"
    for d in result.diagnostics:
        assert d.message
        assert "Traceback" not in d.message


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(JUNK, JUNK, JUNK, JUNK, JUNK, st.lists(st.text(max_size=12), max_size=2))
def test_anything_ends_in_a_resolution(
    config: Any, target: Any, draft: Any, tensors: Any, more: Any, overrides: Any
) -> None:
    for value in (
        config,
        {"speculative": config},
        {"speculative": {"method": "eagle3"}, "engine": config, "target": more},
    ):
        result = specdec.resolve(
            value, overrides, target_config=target, draft_config=draft, target_tensors=more, draft_tensors=tensors
        )
        check_shape(result)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(METHODS),
    st.dictionaries(st.sampled_from(OPTION_NAMES), JUNK | st.integers(1, 9), max_size=4),
    st.dictionaries(
        st.sampled_from(FACT_NAMES), JUNK | st.integers(0, 200) | st.lists(st.integers(-1, 9), max_size=3), max_size=5
    ),
    st.dictionaries(st.sampled_from(FACT_NAMES), JUNK | st.integers(0, 200), max_size=4),
    st.dictionaries(
        st.sampled_from(["fc.weight", "lm_head.weight", "embed_tokens.weight", "d2t"]),
        st.lists(st.integers(0, 200), max_size=3),
        max_size=3,
    ),
)
def test_known_names_with_any_values_end_in_a_resolution(
    method: Any, options: Any, draft: Any, target: Any, tensors: Any
) -> None:
    result = specdec.resolve(
        {"speculative": {**options, "method": method}}, target_config=target, draft_config=draft, draft_tensors=tensors
    )
    check_shape(result)


GOOD: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"method": "ngram", "num_speculative_tokens": 3}, None),
    ({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_match": "leftmost"}, None),
    ({"method": "suffix"}, None),
    (
        {"method": "draft_model", "model": "./d", "num_speculative_tokens": 4, "draft_sample_method": "probabilistic"},
        {"architectures": ["LlamaForCausalLM"], "vocab_size": 128},
    ),
    ({"method": "eagle3", "model": "./d", "num_speculative_tokens": 5}, EAGLE3),
    (
        {
            "method": "eagle3",
            "model": "./d",
            "tree": {"steps": 2, "topk": 2, "verify_tokens": 5},
            "quantization": "inherit",
        },
        EAGLE3,
    ),
    ({"method": "mtp", "model": "./d"}, {"model_type": "deepseek_mtp", "n_predict": 2}),
    (
        {"model": "./d"},
        {
            "architectures": ["DFlashDraftModel"],
            "block_size": 8,
            "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 3]},
        },
    ),
    (
        {
            "method": "dspark",
            "model": "./d",
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": 2.5,
        },
        {"architectures": ["Qwen3DSparkModel"], "block_size": 7},
    ),
    ([{"method": "ngram", "num_speculative_tokens": 2}, {"method": "suffix", "num_speculative_tokens": 3}], None),  # type: ignore[list-item]
]
ENGINES = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.integers(1, 64),
        "max_num_batched_tokens": st.integers(2048, 8192),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
        "max_model_len": st.integers(64, 4096),
        "seed": st.integers(0, 9),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(GOOD),
    ENGINES,
    st.dictionaries(st.sampled_from(["temperature", "top_p"]), st.floats(0.1, 1.0), max_size=2),
)
def test_a_dump_resolves_to_the_same_value(good: Any, engine: Any, sampling: Any) -> None:
    user, draft = good
    inputs = {"target_config": TARGET, "draft_config": draft}
    config = specdec.resolve({"speculative": user, "engine": engine, "sampling": sampling}, **inputs).unwrap()
    again = specdec.resolve(plain(config.source), **inputs).unwrap()
    assert again == config
    assert again.config_hash == config.config_hash
    assert again.source == config.source
    from_text = specdec.resolve(parse(json.dumps(plain(config.source)), "dump.json"), **inputs).unwrap()
    assert from_text == config


@pytest.mark.parametrize("path", ["/m/eagle-x", "org/dflash-b16", "./d/dspark", "/tmp/model.v2", "./with space"])
def test_only_the_model_differs_under_another_path(path: str) -> None:
    def resolved(model: str) -> Any:
        user = {"method": "eagle3", "model": model, "num_speculative_tokens": 3}
        return specdec.resolve({"speculative": user}, draft_config=EAGLE3, target_config=TARGET).unwrap()

    one, other = resolved("./d"), resolved(path)
    assert other.draft.model == path
    assert one.config_hash == other.config_hash
    assert {k: v for k, v in one.draft.items() if k != "model"} == {
        k: v for k, v in other.draft.items() if k != "model"
    }
    assert (one.numbers, one.wiring, one.engine, one.hash_factors) == (
        other.numbers,
        other.wiring,
        other.engine,
        other.hash_factors,
    )


def test_a_changed_value_changes_the_hash() -> None:
    def hashed(**user: Any) -> str:
        block = {"method": "eagle3", "model": "./d", "num_speculative_tokens": 3, **user}
        return specdec.resolve({"speculative": block}, draft_config=EAGLE3, target_config=TARGET).unwrap().config_hash

    hashes = [
        hashed(),
        hashed(num_speculative_tokens=4),
        hashed(draft_sample_method="probabilistic"),
        hashed(aux_layers=[1, 2, 3]),
    ]
    assert len(set(hashes)) == len(hashes)


NEEDS = {
    "draft_model": ({"model": "./d", "num_speculative_tokens": 2}, {"architectures": ["LlamaForCausalLM"]}),
    "mtp": ({"num_speculative_tokens": 1}, None),
    "gemma4": ({"model": "./d"}, {"model_type": "gemma4_assistant"}),
    "eagle": ({"model": "./d", "num_speculative_tokens": 2}, {"model_type": "eagle", "vocab_size": 128}),
    "eagle3": ({"model": "./d", "num_speculative_tokens": 2}, EAGLE3),
    "peagle": (
        {"model": "./d", "num_speculative_tokens": 2},
        {"architectures": ["PEagleDraftModel"], "mask_token_id": 3},
    ),
}
ALIASES = [(alias.name, record) for record, alias in builtin().aliases.values()]


@pytest.mark.parametrize(("alias", "record"), ALIASES)
def test_an_alias_resolves_like_its_canonical_name(alias: str, record: str) -> None:
    user, draft = NEEDS.get(record, ({"num_speculative_tokens": 2}, None))
    by_alias = specdec.resolve({"speculative": {"method": alias, **user}}, draft_config=draft)
    by_name = specdec.resolve({"speculative": {"method": record, **user}}, draft_config=draft)
    assert by_alias.unwrap() == by_name.unwrap(), alias
    assert any(d.code in ("method-alias", "deprecated-alias") for d in by_alias.warnings)


@pytest.mark.parametrize("file", DRAFT_CONFIGS, ids=lambda p: p.stem)
def test_published_draft_configs_resolve_without_a_method(file: Path) -> None:
    draft = json.loads(file.read_text())
    result = specdec.resolve({"speculative": {"model": "./d", "num_speculative_tokens": 3}}, draft_config=draft)
    config = result.unwrap()
    family = next(name for name in ("peagle", "dspark", "dflash", "domino", "ealge3", "eagle3") if name in file.stem)
    assert config.method == {"ealge3": "eagle3"}.get(family, family)
    assert config.draft.hidden_size == draft["hidden_size"]
    assert not {d.path for d in result.warnings if d.code == "unknown-checkpoint-field"}


@pytest.mark.parametrize(
    "file", [f for f in DRAFT_CONFIGS if "dflash" in f.stem or "dspark" in f.stem], ids=lambda p: p.stem
)
def test_block_drafts_know_their_k_and_layers(file: Path) -> None:
    draft = json.loads(file.read_text())
    config = specdec.resolve({"speculative": {"model": "./d"}}, draft_config=draft).unwrap()
    block = draft.get("block_size") or draft["dflash_config"]["block_size"]
    assert config.num_speculative_tokens == (block if "dspark" in file.stem else block - 1)
    assert list(config.wiring.capture_before_layer) == [i + 1 for i in draft["dflash_config"]["target_layer_ids"]]
    assert config.draft.mask_token_id == draft["dflash_config"]["mask_token_id"]


def test_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    user = {"method": "eagle3", "model": "./d", "num_speculative_tokens": 3}
    inputs: dict[str, Any] = {
        "target_config": {**TARGET, "max_position_embeddings": 256},
        "draft_config": {**EAGLE3, "max_position_embeddings": 32},
    }
    before = specdec.resolve({"speculative": user}, **inputs)
    for name in (
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        "VLLM_USE_V2_MODEL_RUNNER",
        "ALLOW_LONGER",
    ):
        monkeypatch.setenv(name, "1")
    assert specdec.resolve({"speculative": user}, **inputs) == before


def test_inputs_are_not_changed() -> None:
    user = {
        "speculative": {
            "method": "EAGLE3",
            "model": "./d",
            "num_speculative_tokens": None,
            "tree": {"steps": 2, "topk": 1, "verify_tokens": 3},
        }
    }
    draft, target = dict(EAGLE3), dict(TARGET)
    kept = copy.deepcopy((user, draft, target))
    specdec.resolve(user, ["engine.seed=3"], draft_config=draft, target_config=target)
    assert (user, draft, target) == kept


def test_an_explicit_null_equals_an_absent_key() -> None:
    record = builtin().records["eagle3"]
    user = {"method": "eagle3", "model": "./d", "num_speculative_tokens": 3}
    nulls = {name: None for name in record.options if name not in user}
    plain = specdec.resolve({"speculative": user}, draft_config=EAGLE3).unwrap()
    assert specdec.resolve({"speculative": {**nulls, **user}}, draft_config=EAGLE3).unwrap() == plain
    assert (
        specdec.resolve({"speculative": user, "engine": None, "sampling": {"seed": None}}, draft_config=EAGLE3).unwrap()
        == plain
    )


def test_a_finalized_config_is_frozen() -> None:
    config = specdec.resolve({"speculative": {"method": "ngram", "num_speculative_tokens": 3}}).unwrap()
    with pytest.raises(AttributeError):
        config.options.prompt_lookup_max = 3
    with pytest.raises(AttributeError):
        config.num_speculative_tokens = 3  # type: ignore[misc]


def test_errors_are_raised_together_by_unwrap() -> None:
    result = specdec.resolve({"speculative": {"method": "ngram", "num_speculative_token": 3, "prompt_lookup_min": 0}})
    with pytest.raises(specdec.ConfigError) as caught:
        result.unwrap()
    assert {d.code for d in caught.value.diagnostics} == {"unknown-key", "out-of-range"}


def test_every_value_has_an_origin() -> None:
    user = {"method": "eagle3", "model": "./d", "num_speculative_tokens": 3}
    config = specdec.resolve({"speculative": user}, draft_config=EAGLE3, target_config=TARGET).unwrap()
    groups = {
        "speculative": config.options,
        "draft": config.draft,
        "target": config.target,
        "engine": config.engine,
        "wiring": config.wiring,
        "verification": config.verification,
    }
    without = [
        f"{g}.{n}"
        for g, values in groups.items()
        for n, v in values.items()
        if v is not None and f"{g}.{n}" not in config.provenance
    ]
    assert without == []


def test_resolving_is_free_of_torch() -> None:
    program = (
        "import sys, specdec; "
        "specdec.resolve({'speculative': {'method': 'eagle3', 'model': './d', 'num_speculative_tokens': 3}}, draft_config={}).unwrap(); "
        "print([m for m in ('torch', 'transformers', 'triton', 'hydra') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("temperature, warned", [(0.0, False), (0.7, True), (None, True)])
def test_a_file_that_samples_greedily_is_not_warned_of_sampled_text(temperature, warned):
    document = {
        "target": {"model": "./t"},
        "speculative": {
            "method": "ngram",
            "num_speculative_tokens": 4,
            "rejection_sample_method": "block",
            "num_speculative_tokens_per_batch_size": [[1, 8, 4], [9, 32, 2]],
        },
        "sampling": {} if temperature is None else {"temperature": temperature},
    }
    result = specdec.resolve(document, target_config={"model_type": "llama", "vocab_size": 100})
    assert ("schedule-sampled-text" in [d.code for d in result.diagnostics]) is warned


@pytest.mark.parametrize("dtype, size", [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_kept_draft_logits_have_the_type_of_the_draft(dtype, size):
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 8}
    llama |= {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    block = {"method": "draft_model", "model": "./d", "num_speculative_tokens": 3, "dtype": dtype}
    block["draft_sample_method"] = "probabilistic"

    def kept(**changes):
        document = {"target": {"model": "./t"}, "speculative": {**block, **changes}, "engine": {"max_num_seqs": 4}}
        config = specdec.resolve(document, target_config=llama, draft_config=llama).unwrap()
        return config.resources["draft_logits_bytes"]

    assert kept() == 4 * 3 * 100 * size
    assert kept(rejection_sample_method="coupled") == 0  # the target's own draws decide, no law is looked at
    assert kept(draft_sample_method="greedy") == 0
