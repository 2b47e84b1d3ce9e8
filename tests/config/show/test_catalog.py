"""One catalog for every code: what code and records report is described there, and nothing else is."""

from __future__ import annotations

import ast
from pathlib import Path

from specdec.config.findings.diagnostics import COULD_NOT_RUN
from specdec.config.read.source import parse
from specdec.config.records.registry import builtin
from specdec.config.show.catalog import catalog

ROOT = Path(__file__).resolve().parents[3]
# what callables take a code as their first or second argument, or as `code=`
REPORTERS = {
    "Diagnostic",
    "fatal",
    "finding",
    "RecordError",
    "CheckpointFault",
    "ExpressionError",
    "_problem",
    "_wrong",
}
NAMED_BY_USERS = [
    "method-checkpoint-mismatch",
    "missing-checkpoint-field",
    "head-layer-count-unusual",
    "checkpoint-config-vs-weights",
    "hidden-size-mismatch",
    "missing-required",
    "k-exceeds-block",
    "chain-needs-steps-plus-1",
    "tree-pool-too-small",
    "token-budget",
    "renamed-field",
    "renamed-option",
    "vocab-size-differs",
    "tokenizer-differs",
    "d2t-out-of-range",
    "vocab-field-meaning",
    "draft-positions-extended",
    "rope-differs",
    "trained-shorter-than-served",
    "aux-layers-defaulted",
    "layer-id-out-of-range",
    "unknown-checkpoint-field",
    "missing-tensor",
    "method-not-inferable",
    "duplicate-override",
    "min-greater-than-max",
    "draft-tp",
    "heads-not-divisible",
    "unknown-key",
    "draft-not-quantized",
    "kv-dtype-not-for-draft",
    "draft-dtype-cast",
    "unsupported-combination",
    "unsupported-sampling-param",
    "does-not-fit",
    "untested-engine-version",
    "target-has-no-mtp-layers",
    "file-not-found",
    "wrong-type",
    "duplicate-key",
    "lossy-method",
    "k-below-block",
]


def codes_in(file: Path) -> set[str]:
    """Texts that a file passes as a code."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.id
            if isinstance(node.func, ast.Name)
            else node.func.attr
            if isinstance(node.func, ast.Attribute)
            else ""
        )
        first = node.args[:2] if name in REPORTERS else []
        for value in [*first, *(k.value for k in node.keywords if k.arg == "code")]:
            choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            found |= {
                c.value for c in choices if isinstance(c, ast.Constant) and isinstance(c.value, str) and "-" in c.value
            }
    return found


def used() -> dict[str, str]:
    """Every code in the source and in the records, with a place that uses it."""
    found = {
        code: str(file.relative_to(ROOT))
        for file in sorted((ROOT / "specdec").rglob("*.py"))
        for code in codes_in(file)
    }
    registry = builtin()
    for owner in [*registry.records.values(), *registry.targets.values()]:
        found |= {rule.code or rule.id: f"record {owner.name}" for rule in owner.rules}
    return found


def test_every_code_is_in_the_catalog() -> None:
    missing = {code: where for code, where in used().items() if code not in catalog()}
    assert not missing


def test_every_entry_is_used() -> None:
    texts = set(NAMED_BY_USERS) | set(used())
    for file in (ROOT / "specdec").rglob("*.py"):
        texts |= {
            n.value
            for n in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
    assert set(catalog()) <= texts


def test_codes_of_the_reports_are_in_the_catalog() -> None:
    assert set(NAMED_BY_USERS) <= set(catalog())
    assert set(catalog()) >= COULD_NOT_RUN


def test_entries_are_complete_and_examples_parse() -> None:
    for entry in catalog().values():
        assert entry.title and entry.explanation.endswith(".") and entry.fix.endswith("."), entry.code
        assert len(entry.title) <= 70, entry.code
        assert "TODO" not in entry.explanation


def test_the_catalog_file_has_no_faults() -> None:
    assert parse((ROOT / "specdec/config/show/catalog.yaml").read_text(encoding="utf-8")).problems == []
