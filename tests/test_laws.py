"""The laws of the design, as tests over the source: no method names in code, no torch in the configuration half, small files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [*sorted((ROOT / "specdec").rglob("*.py")), *sorted((ROOT / "kernels").rglob("*.py"))]
IDENTITY = re.compile(r"(^|_)(method|methods|model_type|model_types|arch|architecture|architectures)$")
TORCH_FREE = [
    *(p for p in SOURCES if "config" in p.relative_to(ROOT).parts),
    *(
        ROOT / "specdec/cli" / f"{verb}.py"
        for verb in ("validate", "plan", "explain", "list", "schema", "init", "export", "migrate")
    ),
]


def names(node: ast.AST) -> str:
    """The last name of what is compared: ``x.method``, ``config["model_type"]``, ``get("model_type")``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return ""


def literal(node: ast.AST) -> bool:
    """A text, or a collection that holds one."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(literal(item) for item in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def identity_comparisons(tree: ast.AST) -> list[int]:
    """Lines that compare a method, an architecture or a model type with a literal, or match on one."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(IDENTITY.search(names(side)) for side in sides) and any(literal(side) for side in sides):
                lines.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            test = node.func.attr in ("startswith", "endswith") and IDENTITY.search(names(node.func.value))
            if test and any(literal(argument) for argument in node.args):
                lines.append(node.lineno)
        elif isinstance(node, ast.Match) and IDENTITY.search(names(node.subject)):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_code_compares_an_identity_with_a_literal(path):
    assert identity_comparisons(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    ["if config.method == 'ngram': pass", "x = model_type in ('llama', 'qwen')", "config['model_type'] != 'x'",
     "c.get('model_type') == 'x'", "arch.startswith('Eagle')", "match record.method:\n case 'a': pass"],
)  # fmt: skip
def test_the_walk_sees_each_form(code):
    assert identity_comparisons(ast.parse(code))


@pytest.mark.parametrize("path", TORCH_FREE, ids=lambda p: str(p.relative_to(ROOT)))
def test_configuration_code_names_no_heavy_package(path):
    heavy = re.compile(r"^\s*(?:import|from)\s+(torch|transformers|triton|safetensors|gguf)\b", re.M)
    assert heavy.findall(path.read_text(encoding="utf-8")) == []


def test_resolving_loads_no_heavy_package():
    code = (
        "import sys, specdec, specdec.config.export as e\n"
        "c = specdec.resolve({'speculative': {'method': 'ngram', 'num_speculative_tokens': 4}}, ['engine.seed=1']).unwrap()\n"
        "e.export(c, 'vllm')\n"
        "print(sorted({'torch', 'transformers', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_files_stay_small():
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text("utf-8").splitlines())) > 400}
    assert long == {}


@pytest.mark.parametrize(
    "room", sorted({p.parent for p in SOURCES if "config" in p.relative_to(ROOT).parts}), ids=lambda p: p.name
)
def test_a_room_of_the_configuration_stays_small_and_says_what_it_is_for(room):
    assert len([p for p in room.glob("*.py") if p.name != "__init__.py"]) <= 15
    door = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    assert {"Enters:", "Leaves:"} <= set(door.split()) or room == ROOT / "specdec/config", "say what enters and leaves"
