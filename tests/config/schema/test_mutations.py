"""Good examples broken at random (seeded): every mutant ends in a finding with a place, most typos in the right suggestion."""

from __future__ import annotations

import copy
import random
import string
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specdec.cli.validate import check_config
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.findings.render import render_text
from specdec.config.read.source import Document, SourceError, parse
from specdec.config.schema.checker import shipped_checker

GOOD = sorted((Path(__file__).resolve().parents[2] / "examples" / "good").glob("*.y*ml"))
FREE = {"metadata", "hf_overrides", "logit_bias", "$schema"}  # anything is allowed inside
PER_KIND = 60
OVERRIDE_MUTANTS = 40
KNOWN = shipped_checker().known


@dataclass
class Mutant:
    kind: str
    name: str
    text: str
    overrides: list[str]
    suggestion: str | None = None


def places(document: Document) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every key outside free blocks that is written where it is read (not merged in), with its value."""

    def walk(path: tuple[Any, ...], value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            if key in FREE:
                continue
            at = (*path, key)
            mark = document.mark(at, key=True)
            if isinstance(key, str) and document.line_text(mark.line)[mark.column - 1 :].startswith(key + ":"):
                yield at, item
            yield from walk(at, item)

    return walk((), document.data)


def edited(word: str, rng: random.Random) -> str:
    """``word`` after one or two random edits, keeping it a plain YAML word."""
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(word))
        kind = rng.choice(("drop", "insert", "replace", "swap"))
        letter = rng.choice(string.ascii_lowercase)
        if kind == "drop" and len(word) > 3:
            word = word[:at] + word[at + 1 :]
        elif kind == "insert":
            word = word[:at] + letter + word[at:]
        elif kind == "replace":
            word = word[:at] + letter + word[at + 1 :]
        elif at + 1 < len(word):
            word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word


def at_mark(document: Document, text: str, path: tuple[Any, ...], old: str, new: str, key: bool) -> str:
    """The text with ``old`` replaced at the position of a key or value."""
    mark = document.mark(path, key)
    lines = text.split("\n")
    line = lines[mark.line - 1]
    assert line[mark.column - 1 :].startswith(old), (path, old, line)
    lines[mark.line - 1] = line[: mark.column - 1] + new + line[mark.column - 1 + len(old) :]
    return "\n".join(lines)


def plain_scalar(document: Document, path: tuple[Any, ...]) -> str:
    """The scalar as it is written."""
    mark = document.mark(path)
    rest = document.line_text(mark.line)[mark.column - 1 :]
    for stop in (",", "}", "]", " #"):
        rest = rest.split(stop)[0]
    return rest.rstrip()


def option_schema(document: Document, path: tuple[Any, ...]) -> dict[str, Any]:
    if path[0] == "speculative":
        method = KNOWN.method_at(document.data, path[:-1])
        return dict(KNOWN.option(method, path[-1])) if method else {}
    if len(path) == 2:
        return dict(shipped_checker().schema["properties"][path[0]]["properties"].get(path[1], {}))
    return {}


def known_keys() -> set[str]:
    names = {key for keys in KNOWN.sections.values() for key in keys} | set(KNOWN.sections)
    return names | {option for options in KNOWN.methods.values() for option in options}


def mutate(kind: str, name: str, text: str, rng: random.Random) -> Mutant | None:
    document = parse(text, name)
    keys = list(places(document))
    path, value = rng.choice(keys)
    scalar = not isinstance(value, (dict, list))
    schema = option_schema(document, path)
    types = schema.get("type", [])

    def swap(new: str) -> Mutant:
        return Mutant(kind, name, at_mark(document, text, path, plain_scalar(document, path), new, False), [])

    if kind == "typo key":
        word = edited(path[-1], rng)
        if word in known_keys() or word == path[-1]:
            return None
        return Mutant(kind, name, at_mark(document, text, path, path[-1], word, True), [], path[-1])
    if kind == "typo method":
        if path[-1] != "method":
            return None
        word = edited(value, rng)
        if word.lower() in KNOWN.lowered or word.lower() in ("null", ""):
            return None
        return Mutant(kind, name, at_mark(document, text, path, value, word, False), [], KNOWN.canonical_method(value))
    if kind == "wrong type":
        if not scalar or not types:
            return None
        wrong = [
            w
            for t, w in (("array", "[{}]"), ("object", "{zz: 1}"), ("string", "zz top"), ("integer", "-3.25"))
            if t not in types
        ]
        wrong = [w for w in wrong if not (w == "-3.25" and "number" in types)]
        return swap(rng.choice(wrong))
    if kind == "out of range":
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        beyond = ([low - 7] if low is not None else []) + ([high + 1000] if high is not None else [])
        return swap(str(rng.choice(beyond))) if scalar and beyond else None
    if kind == "octal":
        return swap("0" + rng.choice(("17", "10", "7"))) if scalar and "integer" in types else None
    if kind == "NaN":
        return swap(rng.choice((".nan", ".inf", "-.inf", "1e999"))) if scalar and types else None
    if kind == "tab":
        lines = text.split("\n")
        indented = [i for i, line in enumerate(lines) if line.startswith("  ")]
        if not indented:
            return None
        at = rng.choice(indented)
        lines[at] = "\t" + lines[at].lstrip()
        return Mutant(kind, name, "\n".join(lines), [])
    return mutate_data(kind, name, document, path, rng)


def mutate_data(kind: str, name: str, document: Document, path: tuple[Any, ...], rng: random.Random) -> Mutant | None:
    """Mutants that are easier to make from the data than from the text."""
    data = copy.deepcopy(document.data)
    if kind == "yaml 1.1 boolean":
        section, field = rng.choice(
            (
                ("engine", "enable_lora"),
                ("engine", "compile"),
                ("target", "trust_remote_code"),
                ("sampling", "ignore_eos"),
            )
        )
        data[section] = {**(data.get(section) or {}), field: "WORD"}
        word = rng.choice(("on", "off", "yes", "no", "On", "YES", "n"))
        return Mutant(
            kind,
            name,
            yaml.safe_dump(data).replace("WORD", word),
            [],
            "true" if word.lower() in ("on", "yes") else "false",
        )
    if kind == "duplicate key":
        lines = yaml.safe_dump({k: v for k, v in data.items() if k not in FREE}, sort_keys=False).splitlines()
        single = [
            line for line in lines if line.startswith("  ") and ": " in line and not line.lstrip().startswith("-")
        ]
        if not single:
            return None
        line = rng.choice(single)
        at = lines.index(line)
        return Mutant(kind, name, "\n".join([*lines[: at + 1], line, *lines[at + 1 :]]), [])
    if kind == "wrong nesting":
        if len(path) < 2:
            return None
        node = data
        for step in path[:-1]:
            node = node[step]
        value = node.pop(path[-1])
        home = rng.choice([s for s in ("root", "target", "engine", "sampling", "records") if s != path[0]])
        if home == "root":
            data[path[-1]] = value
        elif home == "records":
            data["records"] = {path[-1]: value}
        else:
            data[home] = {**(data.get(home) or {}), path[-1]: value}
            if path[-1] in KNOWN.sections[home]:
                return None
        return None if path[-1] in KNOWN.sections else Mutant(kind, name, yaml.safe_dump(data), [])
    assert kind == "bad override"
    dotted = ".".join(map(str, path))
    choice = rng.choice(("typo", "typo", "type", "grammar", "twice", "remove", "index"))
    text = "\n".join(document.lines)
    if choice == "typo":
        word = edited(path[-1], rng)
        if word in known_keys():
            return None
        return Mutant(
            kind,
            name,
            text,
            [f"{rng.choice(('', '+', '++'))}{'.'.join(map(str, path[:-1]))}{'.' * (len(path) > 1)}{word}=1"],
            path[-1],
        )
    overrides = {
        "type": [f"{dotted}=[[{{zz: 1}}]]"],
        "grammar": [f"{dotted}={rng.choice(('a=b', '{x', '[1,', '(1)', 'x!', chr(34) + 'x'))}"],
        "twice": [f"{dotted}=1", f"{dotted}=2"],
        "remove": [f"~{dotted}x"],
        "index": [f"{dotted}[0]=1"],
    }[choice]
    return Mutant(kind, name, text, overrides)


def check(mutant: Mutant) -> list[Diagnostic]:
    try:
        document = parse(mutant.text, mutant.name)
    except SourceError as error:
        return [error.diagnostic]
    return check_config(document, mutant.overrides, Path())


KINDS = (
    "typo key", "typo method", "wrong type", "out of range", "wrong nesting", "duplicate key", "yaml 1.1 boolean", "octal", "tab", "NaN", "bad override",
)  # fmt: skip


def mutants() -> Iterator[Mutant]:
    rng = random.Random(20261129)
    texts = [(file.name, file.read_text(encoding="utf-8")) for file in GOOD]
    for kind in KINDS:
        wanted = OVERRIDE_MUTANTS if kind == "bad override" else PER_KIND
        made = 0
        while made < wanted:
            mutant = mutate(kind, *rng.choice(texts), rng)
            if mutant is not None:
                made += 1
                yield mutant


def test_every_mutant_is_found_where_it_is() -> None:
    total, right, wanted = Counter[str](), 0, 0
    missed, unlocated, unsuggested = [], [], []
    for mutant in mutants():
        total[mutant.kind] += 1
        found = check(mutant)
        text = render_text(found)
        errors = [d for d in found if d.severity == "error"]
        if not errors:
            missed.append((mutant, text))
        for d in errors:
            on_line = d.source is not None and d.source.file is not None and d.source.line is not None
            if not on_line and not (
                d.source is not None and d.source.kind == "command line" and d.source.text in mutant.overrides
            ):
                unlocated.append((mutant, text))
        if mutant.suggestion is not None:
            wanted += 1
            if any(mutant.suggestion in (d.fix or "") for d in errors):
                right += 1
            else:
                unsuggested.append((mutant.text if not mutant.overrides else mutant.overrides, mutant.suggestion, text))
    assert sum(total.values()) >= 500, total
    assert not missed, missed[0]
    assert not unlocated, unlocated[0]
    assert right >= 0.9 * wanted, (right, wanted, [u[1:] for u in unsuggested[:5]])


def test_the_unbroken_examples_are_valid() -> None:
    for file in GOOD:
        assert check_config(parse(file.read_text(encoding="utf-8"), file.name), [], Path()) == []
