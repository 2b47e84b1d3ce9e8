"""Settings of other engines, and older specdec files, as a specdec configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Severity, Source
from specdec.config.findings.suggest import nearest
from specdec.config.read.source import parse

TREE = "tree"


@lru_cache(maxsize=1)
def engines() -> Mapping[str, Mapping[str, Any]]:
    """The translation tables, by engine."""
    text = files("specdec.config.migrate").joinpath("foreign.yaml").read_text(encoding="utf-8")
    data: Mapping[str, Mapping[str, Any]] = parse(text, "foreign.yaml").data
    return data


@dataclass
class Migration:
    """A configuration on its way from another engine's settings; ``diagnostics`` say what changed or was dropped."""

    engine: str
    config: dict[str, Any] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    tree: dict[str, Any] = field(default_factory=dict)

    def say(self, code: str, severity: Severity, path: str, message: str, fix: str | None, text: str) -> None:
        self.diagnostics.append(
            Diagnostic(code, severity, path, message, fix, Source("command line", text=text or None))
        )

    def put(self, path: str, value: Any, text: str) -> None:
        """Store a value; a second one for the same place is an error, not a silent replacement."""
        place, _, leaf = path.rpartition(".")
        node = self.tree if place == TREE else self.config
        for part in [] if place in ("", TREE) else place.split("."):
            node = node.setdefault(part, {})
        if node.get(leaf, value) != value:
            message = f"{text} sets {path} to {value!r}, but it was already set to {node[leaf]!r}"
            fix = "keep one of the two; several speculators are written as a list under speculative"
            self.say("duplicate-override", "error", path, message, fix, text)
            return
        node[leaf] = value


def from_flags(engine: str, flags: Sequence[str]) -> Migration:
    """Translate command-line flags of another engine."""
    table: Mapping[str, Any] = engines()[engine].get("flags", {})
    result, words = Migration(engine), list(flags)
    while words:
        word, _, glued = words.pop(0).partition("=")
        entry = table.get(word)
        if entry is None:
            near = nearest(word, table)
            fix = f"did you mean {near}?" if near else "leave it out: it does not concern speculation"
            result.say(
                "unknown-key", "error", word, f"{engines()[engine]['title']} flag {word} is not known here", fix, word
            )
            while words and not glued and not words[0].startswith("-"):
                words.pop(0)
            continue
        if entry.get("alone"):
            value: Any = True
        elif glued:
            value = scalar(glued)
        elif words:
            value = scalar(words.pop(0))
        else:
            result.say("wrong-type", "error", word, f"{word} needs a value", None, word)
            continue
        _place(result, word, value, entry)
    return _finish(result)


def from_settings(engine: str, settings: Any) -> Migration:
    """Translate a settings object of another engine: the parsed JSON or YAML of its file."""
    table = engines()[engine]
    result = Migration(engine)
    if isinstance(settings, Mapping) and isinstance(settings.get(table.get("nested", "")), Mapping):
        settings = settings[table["nested"]]
    if not isinstance(settings, Mapping):
        result.say("wrong-type", "error", "", f"{table['title']} settings must be a mapping", None, str(settings)[:40])
        return result
    for key, value in settings.items():
        entry = table.get("keys", {}).get(str(key))
        if entry is not None:
            _place(result, str(key), value, entry)
        elif table.get("rest"):
            result.put(f"{table['rest']}.{key}", value, str(key))
        else:
            near = nearest(str(key), table.get("keys", {}))
            fix = f"did you mean {near}?" if near else "leave it out: it does not concern speculation"
            result.say("unknown-key", "error", str(key), f"{table['title']} key {key} is not known here", fix, str(key))
    return _finish(result)


def scalar(text: str) -> Any:
    """A flag's value as JSON when it is JSON, else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _place(result: Migration, name: str, value: Any, entry: Mapping[str, Any]) -> None:
    if "drop" in entry:
        result.say("renamed-option", "warning", name, f"{name} is left out: {entry['drop']}", None, name)
        return
    target = entry["to"]
    if "add" in entry and isinstance(value, int):
        value += entry["add"]
    if entry.get("renamed"):
        code = "renamed-option" if name.startswith("-") else "renamed-field"
        note = f"; {entry['note']}" if entry.get("note") else ""
        result.say(code, "warning", target, f"{name} is now {target}{note}", None, name)
    if isinstance(value, Mapping):
        keys = engines()[result.engine].get("keys", {})
        for key, part in value.items():
            if key in keys:
                _place(result, str(key), part, keys[key])
            else:
                result.put(f"{target}.{key}", part, name)
        return
    if "list" in entry and isinstance(value, str) and entry["list"] in value:
        parts = [part.strip() for part in value.split(entry["list"])]
        result.config["speculative"] = [
            {**result.config.get("speculative", {}), "method": _method(result, p)} for p in parts
        ]
        return
    if target == "speculative.method":
        value = _method(result, value)
    result.put(target, value, name)


def _method(result: Migration, name: Any) -> Any:
    methods = engines()[result.engine].get("methods", {})
    folded = {str(key).lower(): value for key, value in methods.items()}
    return folded.get(str(name).lower(), str(name).lower() if isinstance(name, str) else name)


def _finish(result: Migration) -> Migration:
    """Turn steps / topk / verify tokens into k for a chain, or into a tree."""
    tree = result.tree
    speculative = result.config.get("speculative")
    if tree and not isinstance(speculative, list):
        steps, topk, verify = tree.get("steps"), tree.get("topk", 1), tree.get("verify_tokens")
        block = result.config.setdefault("speculative", {})
        if topk == 1:
            if steps is None and isinstance(verify, int):
                steps = verify - 1
            elif isinstance(steps, int) and verify not in (None, steps + 1):
                message = (
                    f"a chain of {steps} drafted tokens is verified as a block of {steps + 1} "
                    f"(the drafts and the token before them), not {verify}"
                )
                fix = f"write {steps + 1} draft tokens, or {verify - 1 if isinstance(verify, int) else 'fewer'} steps"
                result.say("chain-needs-steps-plus-1", "error", "speculative.num_speculative_tokens", message, fix, "")
            if steps is not None:
                block["num_speculative_tokens"] = steps
        else:
            block["num_speculative_tokens"] = steps
            block[TREE] = {
                key: value for key, value in (("steps", steps), ("topk", topk), ("verify_tokens", verify)) if value
            }
    if result.config and "schema_version" not in result.config:
        result.config = {"schema_version": 1, **result.config}
    return result
