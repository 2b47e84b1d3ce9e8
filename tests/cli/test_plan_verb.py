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
    assert "embedded engine: planned" in result.out


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
