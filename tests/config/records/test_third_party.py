"""A package from outside, built and installed for real, adds methods with one YAML file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "fixtures" / "third_party"
RUN = "from specdec.cli.main import entry; entry()"


def build(source: Path, into: Path) -> Path:
    """Build a wheel from ``source`` and install it below ``into``; needs no network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    copy = into / "source"
    shutil.copytree(source, copy)
    subprocess.run([*command, "--target", str(into / "site"), str(copy)], check=True, capture_output=True, text=True)
    return into / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(PACKAGE, tmp_path_factory.mktemp("third_party"))


def specdec(site: Path, *arguments: str, code: str = RUN) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(
        "schema_version: 1\ntarget: {model: org/nowhere}\nspeculative: {method: repeat_last, repeat_at_most: 3}\n"
    )
    return file


def test_validate_knows_the_method(site: Path, config: Path) -> None:
    done = specdec(site, "validate", str(config))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stdout + done.stderr


def test_validate_knows_its_options(site: Path, config: Path) -> None:
    config.write_text(config.read_text().replace("repeat_at_most", "repeat_at_mots"))
    done = specdec(site, "validate", str(config))
    assert done.returncode == 1
    assert "repeat_at_most" in done.stdout + done.stderr


def test_without_the_package_the_method_is_unknown(tmp_path: Path, config: Path) -> None:
    done = specdec(tmp_path, "validate", str(config))
    assert done.returncode == 1
    assert "repeat_last" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list",), "repeat_last"),
        (("explain", "repeat_last"), "Repeat the last token"),
        (("explain", "repeat_last.repeat_at_most"), "Longest run"),
        (("explain", "strict_ngram"), "ngram"),
    ],
)
def test_list_and_explain_show_it(site: Path, arguments: tuple[str, ...], says: str) -> None:
    done = specdec(site, *arguments)
    assert (done.returncode, says in done.stdout) == (0, True), done.stdout + done.stderr


def test_plan_with_overrides(site: Path, config: Path) -> None:
    done = specdec(site, "plan", str(config), "speculative.num_speculative_tokens=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repeat_last" in done.stdout and "num_speculative_tokens" in done.stdout
    done = specdec(site, "plan", str(config), "speculative.num_speculative_tokens=4")
    assert done.returncode == 1
    assert "longer-than-run" in done.stdout + done.stderr


def test_plan_of_the_method_as_an_override(site: Path, config: Path) -> None:
    done = specdec(
        site,
        "plan",
        str(config),
        "~speculative.repeat_at_most",
        "speculative.method=strict_ngram",
        "speculative.prompt_lookup_max=4",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "strict_ngram" in done.stdout


def test_sweep(site: Path, config: Path) -> None:
    done = specdec(site, "plan", "-m", str(config), "speculative.num_speculative_tokens=1,2,3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_class_is_imported_only_to_build(site: Path) -> None:
    code = (
        "import sys; from specdec.config.records import registry\n"
        "record = registry.installed().records['repeat_last']\n"
        "assert 'fixture_drafts' not in sys.modules and 'torch' not in sys.modules\n"
        "from specdec.speculators.init import load_class\n"
        "both = (record, registry.installed().records['strict_ngram'])\n"
        "print(record.origin, *(load_class(r.implementation, r.name).__name__ for r in both))"
    )
    done = specdec(site, code=code)
    assert done.stdout.strip() == "package fixture-drafts RepeatLastSpeculator NgramSpeculator", done.stderr


CLASS = "repeat_last:RepeatLastSpeculator"
FAULTS: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "a clash": (
        {"records.yaml": ("repeat_last:\n", "medusa:\n")},
        "record-clash",
        ("medusa", "built in", "records.yaml"),
    ),
    "a clash with an alias": ({"records.yaml": ("repeat_last:\n", "nextn:\n")}, "record-clash", ("nextn", "built in")),
    "a broken record": ({"records.yaml": ("title: Repeat", "titel: Repeat")}, "unknown-key", ("titel", "title")),
    "a broken expression": (
        {"records.yaml": ("k <= options.repeat_at_most", "k <= options.repeat_at_mots")},
        "unknown-name",
        ("repeat_at_mots",),
    ),
    "a class without propose": (
        {"repeat_last.py": ("def propose", "def suggest")},
        "class-incomplete",
        ("propose", "repeat_last.py", "fixture-drafts"),
    ),
    "no such class": ({"records.yaml": (CLASS, "repeat_last:Nobody")}, "class-not-found", ("Nobody", "repeat_last.py")),
    "no such module": (
        {"records.yaml": ("fixture_drafts." + CLASS, "fixture_drafts.gone:Nobody")},
        "class-not-found",
        ("fixture_drafts.gone",),
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_of_a_package_name_both_sides(site: Path, case: str, tmp_path: Path) -> None:
    edits, code, says = FAULTS[case]
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    for name, (old, new) in edits.items():
        file = broken / "fixture_drafts" / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
    script = (
        "from specdec.config.records import registry\n"
        "assert 'ngram' in registry.installed().records and 'repeat_last' not in registry.installed().records\n"
        "for d in registry.installed_problems(): print(d.code, d.source, d.message)"
    )
    done = specdec(broken, code=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == code
    assert "fixture-drafts" in done.stdout
    assert all(word in done.stdout for word in says), done.stdout
    listed = specdec(broken, "list")
    assert (listed.returncode, "fixture-drafts" in listed.stderr, "Traceback" in listed.stderr) == (0, True, False)


def test_two_packages_that_clash(site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy)
    (copy / "src" / "fixture_drafts").rename(copy / "src" / "other_drafts")
    for file in [copy / "pyproject.toml", *(copy / "src" / "other_drafts").iterdir()]:
        if file.is_file():
            text = file.read_text().replace("fixture-drafts", "other-drafts").replace("fixture_drafts", "other_drafts")
            file.write_text(text.replace("default: 2", "default: 4"))
    other = build(copy, tmp_path)
    script = (
        "from specdec.config.records import registry\nfor d in registry.installed_problems(): print(d.code, d.message)"
    )
    done = specdec(Path(f"{site}{os.pathsep}{other}"), code=script)
    assert done.stdout.startswith("record-clash")
    assert "fixture-drafts" in done.stdout and "other-drafts" in done.stdout
