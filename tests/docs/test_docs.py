"""The docs are true: examples resolve, code runs, links lead somewhere, generated parts are fresh."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from specdec import docs
from specdec.cli import main as main_module
from specdec.config.read.source import parse
from specdec.config.records.parse import check_records_file
from specdec.config.schema.checker import check_document, checker_for

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)
HAND_WRITTEN = [page for page in PAGES if page.name not in ("options.md", "errors.md", "methods.md")]


def blocks(language: str) -> list:
    found = []
    for page in HAND_WRITTEN:
        for number, match in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            if match[1] == language and "notest" not in match[2]:
                found.append(pytest.param(match[3], id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_examples_are_valid(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = parse(text).data
    if "speculators" in data:
        (tmp_path / "records.yaml").write_text(text, encoding="utf-8")
        assert check_records_file(tmp_path / "records.yaml") == []
    elif "speculative" in data and "records" not in data:
        document = parse(text, "example.yaml")
        checker, problems = checker_for(document.data)
        assert [*problems, *check_document(document, checker)] == []


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_records_example_works_as_shown(tmp_path, monkeypatch):
    """The two files of "YAML only", side by side, resolve; the stricter rule holds."""
    import specdec

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/add-a-speculator.md").read_text(encoding="utf-8")
    records, run = [m[3] for m in FENCE.finditer(page) if m[1] == "yaml"]
    (tmp_path / "my_records.yaml").write_text(records, encoding="utf-8")
    (tmp_path / "run.yaml").write_text(run, encoding="utf-8")
    config = specdec.resolve(tmp_path / "run.yaml").unwrap()
    assert (config.method, config.options.prompt_lookup_min, config.options.prompt_lookup_max) == (
        "careful_ngram",
        3,
        6,
    )
    loose = specdec.resolve(tmp_path / "run.yaml", ["speculative.prompt_lookup_min=2"])
    assert [d.code for d in loose.errors] == ["careful-window"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_generated_pages_are_fresh(capsys):
    assert docs.main(["--check"]) == 0, capsys.readouterr().err


COMMANDS = sorted(
    {
        (page.name, line.partition(" #")[0].strip())
        for page in HAND_WRITTEN
        for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        if match[1] == "console"
        for line in match[3].splitlines()
        if line.startswith("specdec ")
    }
)
RUNTIME = ("generate", "bench", "serve")  # only their arguments are checked here


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A folder with the configuration of the first page and a records file, as the pages assume."""
    page = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
    (tmp_path / "run.yaml").write_text(next(m[3] for m in FENCE.finditer(page) if m[1] == "yaml"), encoding="utf-8")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").write_bytes((tmp_path / "run.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_work_as_shown(page, command, example, capsys):
    words = shlex.split(command.partition(" > ")[0])[1:]
    if words[0] in RUNTIME:
        main_module.parser_for(words[0], import_module(f"specdec.cli.{words[0]}")).parse_intermixed_args(words[1:])
        return
    if words[0] == "init":
        (example / "run.yaml").unlink()
    words = [str(path) for word in words for path in (sorted(Path(".").glob(word)) if "*" in word else [word])]
    assert main_module.main(words) == 0, capsys.readouterr()


def shown(first: str) -> list[str]:
    """The lines of the README's block that starts with a command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(m[3] for m in FENCE.finditer(text) if m[3].startswith(first))
    return block.splitlines()[1:]


def test_the_error_in_the_readme_is_what_is_printed(tmp_path, monkeypatch, capsys):
    lines = shown("$ specdec validate run.yaml")
    source = next(line for line in lines if line.startswith("  | speculative"))[4:]
    (tmp_path / "run.yaml").write_text(f"schema_version: 1\ntarget: {{model: ./target}}\n{source}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main_module.main(["validate", "run.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == lines


def test_the_plan_in_the_readme_is_what_is_printed(tmp_path, monkeypatch, capsys):
    """Lines that the README leaves out are marked with an ellipsis; the others stand in this order."""
    target = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36,
              "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
              "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}  # fmt: skip
    draft = {**target, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
    for name, config in (("Qwen3-8B", target), ("Qwen3-8B-eagle3", draft)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(
        "schema_version: 1\ntarget: {model: ./Qwen3-8B, max_model_len: 8192}\n"
        "speculative: {method: eagle3, model: ./Qwen3-8B-eagle3, num_speculative_tokens: 3}\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main_module.main(["plan", "run.yaml"]) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    missing = [line for line in shown("$ specdec plan run.yaml") if line and line != "…" and line not in printed]
    assert missing == []


def test_every_complete_configuration_names_its_schema():
    """In the pages and among the examples, an editor finds the schema by the modeline."""
    shown = [m[3] for page in HAND_WRITTEN for m in FENCE.finditer(page.read_text(encoding="utf-8")) if m[1] == "yaml"]
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests/examples").glob("*/*.y*ml")]
    for text in [
        *(text for text in shown if re.search(r"^(schema_version|speculative|speculators):", text, re.M)),
        *files,
    ]:
        assert text.lstrip("\ufeff").startswith("# yaml-language-server: $schema="), text


def test_the_pages_about_ci_show_the_example_files():
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    shown = [yaml.safe_load(match[3]) for match in FENCE.finditer(page) if match[1] == "yaml"]
    for name in ("github-actions.yml", "pre-commit-config.yaml"):
        assert yaml.safe_load((ROOT / "docs/examples" / name).read_text(encoding="utf-8")) in shown
    manifest = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (hooks,) = [part["repos"][0]["hooks"] for part in shown if "repos" in part]
    assert {hook["id"] for hook in hooks} <= {hook["id"] for hook in manifest}
