"""The words of a finding, made from what the schema wanted and what the person wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.paths import Step, format_path
from specdec.config.findings.render import quote
from specdec.config.findings.suggest import nearest, normalise
from specdec.config.read.scalars import value_hint
from specdec.config.read.validator import Violation
from specdec.config.schema.known import SPECULATIVE, Known

TYPE_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def unknown_key(
    known: Known, data: Any, path: tuple[Step, ...], key: str, allowed: Sequence[str], source: Source | None
) -> tuple[str, str | None]:
    """Message and fix for a key that is not read where it stands."""
    method = known.method_at(data, path)
    on_command_line = source is not None and source.kind == "command line"
    parent = format_path(path)
    dotted = ".".join(map(str, path))

    def spell(name: str) -> str:
        return f"{dotted}.{name}" if on_command_line and dotted else name

    readers = [m for m in known.readers(key) if m != method] if path and path[0] == SPECULATIVE else []
    owner = method or (f"'{parent}'" if parent else "a configuration file")
    message = f"'{key}' is not an option of {owner}" if method else f"'{key}' is not a key of {owner}"
    near = nearest(key, allowed)
    if near and normalise(near) == normalise(key):
        return message, f"did you mean '{spell(near)}'?"
    if readers and method:
        message += f"; it is read by {_listed(readers)}"
        return message, f"remove it{f', or did you mean {spell(near)!r}?' if near else f', or use method {readers[0]}'}"
    homes = [h for h in known.homes(key) if (h,) != path[:1]]
    if key in known.sections and path:
        return message, f"'{key}' is a section of the file: write it at the left margin"
    if near and homes and near not in (key,):
        return message, f"did you mean '{spell(near)}'? ('{key}' itself belongs to '{homes[0]}')"
    if near:
        return message, f"did you mean '{spell(near)}'?"
    if homes:
        return message, f"write it under '{homes[0]}:'" if not on_command_line else f"did you mean '{homes[0]}.{key}'?"
    elsewhere = {option: home for home in (*known.sections, SPECULATIVE) for option in _keys_of(known, home)}
    far = nearest(key, elsewhere)
    if far and far not in allowed:
        return message, f"did you mean '{elsewhere[far]}.{far}'?"
    names = sorted(name for name in allowed if name != "method")
    if not names:
        return message, "remove it"
    return message, f"remove it; {'known options' if method else 'known keys'}: {_listed(names, 12)}"


def explain(known: Known, error: Violation, source: Source | None) -> Diagnostic:
    """The finding for a value that its schema does not allow."""
    path, last = format_path(error.path), _last(error.path)
    name = f"'{last}'" if last else "the file"
    value, schema, kind, wanted = error.value, error.schema, error.keyword, error.wanted
    if kind == "type":
        return Diagnostic("wrong-type", "error", path, *_wrong_type(name, value, wanted, schema, path), source)
    if kind == "enum" and last == "method":
        return Diagnostic("unknown-method", "error", path, *_unknown_method(known, value), source)
    if kind in ("enum", "const"):
        choices = [c for c in (wanted if kind == "enum" else [wanted]) if c is not None]
        near = nearest(value, [str(c) for c in choices]) if isinstance(value, str) else None
        listed = _listed([c if isinstance(c, str) else quote(c) for c in choices], 20)
        message = (
            f"{name} is {quote(value)}; it can be {listed}"
            if len(choices) > 1
            else f"{name} is {quote(value)}; it must be {listed}"
        )
        return Diagnostic(
            "unknown-value", "error", path, message, f"did you mean '{near}'?" if near else f"use {listed}", source
        )
    if kind in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        limits = _limits(schema)
        return Diagnostic(
            "out-of-range",
            "error",
            path,
            f"{name} is {quote(value)}; it must be {limits}",
            f"use a value {_of(limits)}",
            source,
        )
    if kind in ("minItems", "maxItems"):
        bounds = [f"at least {schema['minItems']}"] if "minItems" in schema else []
        bounds += [f"at most {schema['maxItems']}"] if "maxItems" in schema else []
        if schema.get("minItems") == schema.get("maxItems"):
            bounds = [f"exactly {schema['minItems']}"]
        wish = " and ".join(bounds)
        return Diagnostic(
            "wrong-length", "error", path, f"{name} has {len(value)} items; it must have {wish}", f"give {wish}", source
        )
    if kind == "minLength":
        return Diagnostic(
            "invalid-value", "error", path, f"{name} is an empty text", "write a value, or remove the key", source
        )
    if kind == "uniqueItems":
        return Diagnostic(
            "invalid-value", "error", path, f"{name} names the same item twice", "name each item once", source
        )
    if kind == "pattern":
        return Diagnostic(
            "invalid-value",
            "error",
            path,
            f"{name} is {quote(value)}, which has the wrong form",
            _example(schema),
            source,
        )
    if kind == "propertyNames":
        return Diagnostic(
            "invalid-value", "error", path, f"{name} has a key of the wrong form", _example(schema), source
        )
    return Diagnostic(
        "invalid-value", "error", path, f"{name} is {quote(value)}, which is not allowed here", _example(schema), source
    )


def _last(path: Sequence[Step]) -> str:
    """How a value is called in a message: its key, with the index for an item of a list."""
    keys = [i for i, step in enumerate(path) if isinstance(step, str)]
    return format_path(path[keys[-1] :]) if keys else ""


def _wrong_type(name: str, value: Any, wanted: Any, schema: Any, path: str) -> tuple[str, str | None]:
    types = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    words = " or ".join(TYPE_WORDS[t] for t in types if t != "null") or "null"
    choices = [c for c in schema.get("x-specdec", {}).get("words", ()) if c is not None]
    if choices:
        words += f" ({' or '.join(map(str, choices))})"
    what = "the text " if isinstance(value, str) else "the list " if isinstance(value, list) else ""
    message = f"{name} must be {words}, not {what}{quote(value)}"
    if path == SPECULATIVE and isinstance(value, str):
        hint = (
            "write a mapping, not JSON in quotes"
            if value.lstrip().startswith("{")
            else f"write 'speculative: {{method: {value}}}'"
        )
        return message, hint
    return message, value_hint(value, types) or _written(words, schema)


def _unknown_method(known: Known, value: Any) -> tuple[str, str]:
    methods = sorted(known.methods)
    near = nearest(value, [*methods, *known.names]) if isinstance(value, str) else None
    canonical = known.canonical_method(near) if near else None
    message = f"{quote(value)} is not a method"
    if canonical:
        return message, f"did you mean '{canonical}'? ('specdec list' shows all)"
    return f"{message}; there are {', '.join(methods)}", "use one of them; 'specdec list' says what each needs"


def _limits(schema: Any) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"from {low} to {high}"
    parts = []
    if low is not None:
        parts.append(f"at least {low}")
    if above is not None:
        parts.append(f"greater than {above}")
    if high is not None:
        parts.append(f"at most {high}")
    if below is not None:
        parts.append(f"less than {below}")
    return " and ".join(parts)


def _of(limits: str) -> str:
    return limits if limits.startswith(("from", "greater", "less")) else f"of {limits}"


def _example(schema: Any) -> str | None:
    examples = schema.get("examples") if isinstance(schema, dict) else None
    return f"for example {quote(examples[0])}" if examples else None


def _written(words: str, schema: Any) -> str:
    example = _example(schema)
    return f"write {words}, {example}" if example else f"write {words}"


def _keys_of(known: Known, home: str) -> list[str]:
    if home != SPECULATIVE:
        return known.sections.get(home, [])
    return [option for options in known.methods.values() for option in options]


def _listed(names: Sequence[str], limit: int = 6) -> str:
    shown = list(names[:limit])
    if len(names) > limit:
        return f"{', '.join(shown)} and {len(names) - limit} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
