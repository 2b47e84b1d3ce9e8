"""A Hydra application that composes ``speculative=...`` from the installed records, and hands the node to ``resolve``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import json
import hydra
import specdec

@hydra.main(version_base=None, config_path="conf", config_name="app")
def main(cfg):
    for given in (cfg, {"target": cfg.target, "speculative": cfg.speculative}, cfg.speculative):
        resolution = specdec.resolve(given)
        found = [d.code for d in resolution.errors]
        config = resolution.config
        print(json.dumps(found or [config.method, config.num_speculative_tokens, config.options.to_dict()]))

if __name__ == "__main__":
    main()
"""
CONFIG = """
defaults: [{speculative: ngram}, _self_]
metadata: {k: 3}
target: {model: org/target}
speculative: {num_speculative_tokens: "${metadata.k}"}
hydra: {run: {dir: .}, output_subdir: null, job_logging: {disable_existing_loggers: true}}
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/app.yaml").write_text(CONFIG)
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def run(app: Path, *words: str) -> list:
    command = [sys.executable, "app.py", *words]
    done = subprocess.run(command, cwd=app, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("[") and not line.startswith("[20")
    ]


def test_records_are_options_of_the_group(app):
    whole, block, node = run(app, "speculative.prompt_lookup_max=4")
    assert whole[:2] == block[:2] == node[:2] == ["ngram", 3] and whole[2]["prompt_lookup_max"] == 4


def test_another_option_replaces_the_whole_node(app):
    found = run(app, "speculative=suffix", "metadata.k=5", "speculative.suffix_decoding_max_tree_depth=8")
    assert [row[:2] for row in found] == [["suffix", 5]] * 3 and found[0][2]["suffix_decoding_max_tree_depth"] == 8
    assert "prompt_lookup_max" not in found[0][2]


def test_what_is_wrong_is_found_by_resolve(app):
    assert run(app, "speculative.prompt_lookup_min=5", "speculative.prompt_lookup_max=2")[0] == ["min-greater-than-max"]


def test_a_sweep_over_methods_with_the_joblib_launcher(app):
    found = run(
        app, "-m", "hydra/launcher=joblib", "speculative=ngram,suffix", "hydra.sweep.dir=.", "hydra.sweep.subdir=."
    )
    assert sorted(row[0] for row in found) == ["ngram"] * 3 + ["suffix"] * 3


def test_nodes_with_missing_values_and_broken_interpolations():
    from omegaconf import OmegaConf

    import specdec

    node = OmegaConf.create({"speculative": {"method": "ngram", "num_speculative_tokens": "???"}})
    assert "missing-required" in [d.code for d in specdec.resolve(node).errors]
    broken = OmegaConf.create({"speculative": {"method": "ngram", "num_speculative_tokens": "${nowhere}"}})
    for given in (broken, {"speculative": broken.speculative}):
        (error,) = specdec.resolve(given).errors
        assert error.code == "wrong-type" and "nowhere" in error.message
    chain = OmegaConf.create({"speculative": [{"method": "ngram", "num_speculative_tokens": 3}, {"method": "suffix"}]})
    assert specdec.resolve(chain).unwrap().method == "chain"
