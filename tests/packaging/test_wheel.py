"""The wheel: what is in it, and that it works in a fresh environment without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")} | variables
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new virtual environment with only the wheel and its base dependencies."""
    folder = tmp_path_factory.mktemp("fresh")
    assert run(sys.executable, "-m", "venv", folder / "env", cwd=folder).returncode == 0
    pip = (folder / "env/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done = run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "env/bin"


def test_wheel_holds_records_schemas_and_kernels_and_nothing_else_at_the_top(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {n for n in top if not n.endswith(".dist-info")} == {"specdec", "specdec_kernels", "hydra_plugins"}
    for needed in ("specdec/data/speculators.yaml", "specdec/data/schemas/config.schema.json", "specdec/default.yaml",
                   "specdec/data/schemas/speculators.schema.json", "specdec/config/show/catalog.yaml"):  # fmt: skip
        assert needed in names
    assert wheel.name.startswith("declarative_specdec-")


def test_fresh_environment_validates_and_lists(fresh, tmp_path):
    (tmp_path / "run.yaml").write_text("schema_version: 1\nspeculative: {method: ngram, num_speculative_tokens: 4}\n")
    (tmp_path / "bad.yaml").write_text("speculative: {method: ngram, num_speculatve_tokens: 4}\n")
    good = run(fresh / "specdec", "validate", "run.yaml", cwd=tmp_path)
    assert (good.returncode, good.stdout) == (0, "run.yaml: valid\n"), good.stderr
    bad = run(fresh / "specdec", "validate", "bad.yaml", cwd=tmp_path)
    assert bad.returncode == 1 and "did you mean 'num_speculative_tokens'" in bad.stdout
    listed = run(fresh / "specdec", "list", cwd=tmp_path)
    assert listed.returncode == 0 and "dspark" in listed.stdout
    plan = run(fresh / "specdec", "plan", "run.yaml", "speculative.num_speculative_tokens=2", cwd=tmp_path)
    assert plan.returncode == 0, plan.stderr
    assert run(fresh / "python", "-c", "import torch", cwd=tmp_path).returncode != 0


def test_a_hydra_application_finds_the_records(fresh, tmp_path):
    (tmp_path / "conf.yaml").write_text("defaults: [{speculative: ngram}]\n")
    code = (
        "from hydra import compose, initialize_config_dir; import os, specdec\n"
        "with initialize_config_dir(os.getcwd(), version_base=None):\n"
        "    cfg = compose('conf', ['speculative=suffix', 'speculative.num_speculative_tokens=2'])\n"
        "print(specdec.resolve(cfg).unwrap().method)"
    )
    done = run(fresh / "python", "-c", code, cwd=tmp_path)
    assert done.stdout == "suffix\n", done.stderr


def test_generate_without_the_engine_names_the_command_that_brings_it(fresh, tmp_path):
    done = run(fresh / "specdec", "generate", "--prompt", "hi", cwd=tmp_path)
    assert done.returncode == 2 and "declarative-specdec[run]" in done.stderr and "Traceback" not in done.stderr
