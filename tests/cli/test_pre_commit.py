"""The pre-commit hook, run by pre-commit in a scratch repository with the manifest's own entry and file pattern."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
HOOK: dict[str, Any] = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))[0]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that uses the hook; the entry runs in this environment instead of a fresh one, which needs no network."""
    hook = {**HOOK, "language": "system", "entry": f"{shlex.quote(sys.executable)} -m {HOOK['entry']}"}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": [hook]}]}))
    git(tmp_path, "init", "-q")
    return tmp_path


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    git(folder, "add", "-A")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(folder / ".cache"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_manifest_is_valid() -> None:
    from pre_commit.clientlib import load_manifest

    assert [hook["id"] for hook in load_manifest(str(MANIFEST))] == ["specdec-validate"]
    assert HOOK["language"] == "python"


def test_good_and_bad_configurations(repository: Path) -> None:
    (repository / "specdec.yaml").write_text("speculative: {method: ngram, num_speculative_tokens: 4}\n")
    (repository / "configs").mkdir()
    (repository / "configs" / "chat.specdec.yml").write_text(
        "speculative: {method: suffix, num_speculative_tokens: 4}\n"
    )
    (repository / "other.yaml").write_text("not: a configuration\n")  # the pattern does not match
    good = run(repository)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "Passed" in good.stdout
    (repository / "configs" / "chat.specdec.yml").write_text(
        "speculative: {method: suffix, num_speculatve_tokens: 4}\n"
    )
    bad = run(repository)
    assert bad.returncode == 1
    assert "configs/chat.specdec.yml:1:31: error[unknown-key]" in bad.stdout
    assert "did you mean 'num_speculative_tokens'?" in bad.stdout


def test_nothing_to_check_is_fine(repository: Path) -> None:
    (repository / "other.yaml").write_text("x: 1\n")
    assert "Skipped" in run(repository).stdout
