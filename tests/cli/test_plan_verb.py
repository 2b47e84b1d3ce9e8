"""plan: values with origins, what they beat, engine changes, sweeps, formats, exit codes."""

from __future__ import annotations

import json

import yaml


def test_text_shows_origins_and_beaten_values(specdec, project):
    result = specdec("plan", "run.yaml", "speculative.num_speculative_tokens=5")
    assert result.code == 0, result.out + result.err
    assert "eagle3 · EAGLE-3" in result.out and "lossless" in result.out
    (line,) = [x for x in result.out.splitlines() if x.strip().startswith("num_speculative_tokens ")]
    assert "5" in line and "command line" in line and "3 run.yaml:3" in line
    assert "2 6 9" in result.out  # boundary ids of the wiring
    assert "5 drafted tokens" in result.out and "verify block 6" in result.out


def test_json_is_versioned_and_complete(specdec, project):
    result = specdec("plan", "run.yaml", "--format", "json")
    data = json.loads(result.out)
    assert data["format"] == "specdec/plan/1" and data["method"] == "eagle3" and data["lossless"] is True
    rows = {row["path"]: row for rows in data["sections"].values() for row in rows}
    assert rows["speculative.num_speculative_tokens"]["origin"]["source"].startswith("run.yaml:3:")
    assert rows["draft.draft_vocab_size"]["origin"] == {"kind": "checkpoint", "detail": "draft_vocab_size"}
    assert rows["wiring.capture_before_layer"]["value"] == [2, 6, 9]
    assert rows["numbers.num_lookahead_tokens"]["value"] == 3


def test_yaml_form_holds_a_config_that_resolves_again(specdec, project):
    first = yaml.safe_load(specdec("plan", "run.yaml", "--format", "yaml").out)
    (project / "again.yaml").write_text(yaml.safe_dump(first["config"]), encoding="utf-8")
    second = yaml.safe_load(specdec("plan", "again.yaml", "--format", "yaml").out)
    assert second["config_hash"] == first["config_hash"]


def test_sweep_plans_each_combination(specdec, project):
    result = specdec("plan", "run.yaml", "-m", "speculative.num_speculative_tokens=1,3,5", "--format", "json")
    plans = json.loads(result.out)
    assert [plan["num_speculative_tokens"] for plan in plans] == [1, 3, 5]
    assert plans[1]["overrides"] == ["speculative.num_speculative_tokens=3"]


def test_errors_exit_1_and_a_missing_file_exits_2(specdec, project):
    bad = specdec("plan", "run.yaml", "speculative.num_speculatve_tokens=4")
    assert bad.code == 1 and "did you mean 'speculative.num_speculative_tokens'" in bad.out
    missing = specdec("plan", "rum.yaml")
    assert missing.code == 2 and "rum.yaml" in missing.out + missing.err
    assert specdec("plan", "run.yaml", "target").code == 2  # a second file


def test_lossy_mode_is_labelled(specdec, project):
    result = specdec("plan", "run.yaml", "speculative.rejection_sample_method=fly")
    assert "LOSSY" in result.out and "lossy-method" in result.out
    data = json.loads(specdec("plan", "run.yaml", "speculative.rejection_sample_method=fly", "--format=json").out)
    assert data["lossless"] is False


def test_strict_turns_a_guess_into_an_error(specdec, project):
    config = json.loads((project / "draft/config.json").read_text())
    del config["eagle_aux_hidden_state_layer_ids"]
    (project / "draft/config.json").write_text(json.dumps(config))
    assert specdec("plan", "run.yaml").code == 0
    strict = specdec("plan", "run.yaml", "--strict")
    assert strict.code == 1 and "eagle_aux_hidden_state_layer_ids" in strict.out


def test_default_config_is_planned_without_a_file(specdec):
    result = specdec("plan")
    assert result.code == 0 and result.out.startswith("ngram · ")


def test_no_line_of_the_tables_is_wider_than_the_terminal(specdec, project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    result = specdec("plan", "run.yaml", "engine.max_num_seqs=64", "speculative.num_speculative_tokens=5")
    tables = result.out.split("\ntarget.model: ")[0]  # findings are one line each
    assert max(len(line) for line in tables.splitlines()) <= 100 and "…" not in tables


def test_both_sides_of_inherited_settings(specdec, project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    config = json.loads((project / "target/config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (project / "target/config.json").write_text(json.dumps(config))
    lines = specdec("plan", "run.yaml", "target.kv_cache_dtype=fp8").out.splitlines()
    sides = lines[lines.index("draft and target") :]
    assert any(" ".join(x.split()) == "dtype bfloat16 target bfloat16; inherited unless set" for x in sides)
    assert any(x.split()[:3] == ["kv_cache_dtype", "fp8", "target"] for x in sides)
    quantization = next(x for x in sides if x.strip().startswith("quantization"))
    assert "none" in quantization and "target fp8; not inherited: the draft has its own files" in quantization
    data = json.loads(specdec("plan", "run.yaml", "--format", "json").out)
    rows = {row["path"]: row for row in data["inheritance"]}
    assert rows["draft.quantization"]["draft"] is None and rows["draft.quantization"]["target"] == "fp8"
    assert rows["draft.rope_type"]["rule"] == "never inherited"


def test_memory_of_the_draft_is_shown_also_where_it_is_unknown(specdec, project):
    out = specdec("plan", "run.yaml", "speculative.draft_sample_method=probabilistic").out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if "bytes" in line}
    assert rows["draft_weight_bytes"][0] == "unknown" and "weights" in rows["draft_weight_bytes"]
    assert rows["draft_kv_bytes_per_token"] == ["128", "B"]  # one layer, two heads of 16, key and value, bfloat16
    assert rows["draft_logits_bytes"] == ["6.14", "kB"]  # 4 requests, 3 drafts, 256 ids


def test_limits_that_speculation_lowers(specdec, project):
    config = json.loads((project / "draft/config.json").read_text()) | {
        "architectures": ["DFlashDraftModel"],
        "block_size": 8,
    }
    del config["draft_vocab_size"], config["eagle_aux_hidden_state_layer_ids"]
    config["dflash_config"] = {"target_layer_ids": [1, 5, 8], "mask_token_id": 7}
    (project / "draft/config.json").write_text(json.dumps(config))
    overrides = ("speculative.method=dflash", "engine.max_num_batched_tokens=64", "engine.max_num_seqs=32")
    out = specdec("plan", "run.yaml", *overrides).out
    assert "engine.max_num_active_seqs" in out and "32 -> 16" in out and "engine-limit-lowered" in out
    changes = json.loads(specdec("plan", "run.yaml", *overrides, "--format=json").out)["changes"]
    assert {(c["path"], c["before"], c["after"]) for c in changes} == {
        ("engine.lookahead_slots_per_request", 0, 4),
        ("engine.max_num_active_seqs", 32, 16),
    }


def test_a_chain_shows_its_members_and_their_memory_together(specdec, project):
    (project / "chain.yaml").write_text(
        "target: {model: ./target, max_model_len: 1024}\n"
        "speculative:\n"
        "- {method: ngram, num_speculative_tokens: 4}\n"
        "- {method: eagle3, model: ./draft, num_speculative_tokens: 3}\n"
    )
    out = specdec("plan", "chain.yaml").out
    assert "\n1. ngram · " in out and "\n2. eagle3 · " in out and "largest of the members" in out
    data = json.loads(specdec("plan", "chain.yaml", "--format", "json").out)
    assert [member["method"] for member in data["members"]] == ["ngram", "eagle3"]
    resources = {row["path"]: row["value"] for row in data["sections"]["resources"]}
    assert resources["resources.draft_kv_bytes_per_token"] == 128
    assert resources["resources.draft_weight_bytes"] is None  # the head has no weights here, so the sum is not known


def test_what_the_embedded_engine_does_not_read_is_a_warning(specdec, project):
    (project / "ngram.yaml").write_text(
        "target: {model: ./target}\nspeculative: {method: ngram, num_speculative_tokens: 2}\n"
    )
    assert "embedded engine" not in specdec("plan", "ngram.yaml").out
    done = specdec("plan", "ngram.yaml", "engine.data_parallel_size=2", "engine.cudagraph_mode=none")
    assert done.code == 0
    assert "warning[engine-cannot-run]: engine.data_parallel_size is 2" in done.out
    assert "engine.cudagraph_mode has no effect in the embedded engine" in done.out


def test_another_method_over_the_packaged_default(specdec):
    result = specdec("plan", "speculative=suffix")
    assert result.code == 0 and result.out.startswith("suffix · "), result.out
    kept = specdec("plan", "speculative.method=suffix", "speculative.prompt_lookup_min=2")
    assert kept.code == 1 and "prompt_lookup_min" in kept.out  # what a person wrote is never dropped
