"""A record's options as a strict, frozen pydantic model, built when it is first needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.language.namespace import freeze
from specdec.config.language.record import OptionSpec, SpeculatorRecord

_WORDS = {
    "integer": "an integer", "number": "a number", "string": "a text", "boolean": "true or false",
    "array": "a list", "object": "a map",
}  # fmt: skip
_CODES = {
    "greater_than_equal": "out-of-range", "less_than_equal": "out-of-range", "greater_than": "out-of-range",
    "finite_number": "out-of-range", "too_short": "wrong-length", "too_long": "wrong-length",
}  # fmt: skip
_models: dict[
    int, tuple[Any, Any]
] = {}  # by identity of a record or option, which is kept so that its id stays its own


def option_model(record: SpeculatorRecord) -> Any:
    """The pydantic model class of a record's options; unknown keys, wrong types and values out of range are errors."""
    return _kept(record, record.name, record.options)


def validate_options(
    record: SpeculatorRecord,
    values: Mapping[str, Any],
    sources: Mapping[str, Source] | None = None,
    at: str = "speculative",
) -> tuple[Any, list[Diagnostic]]:
    """An instance of the record's model, or None and every finding. Null equals absent; 8.0 is the integer 8.

    ``sources`` maps an option to where its value was written.
    """
    from pydantic import ValidationError

    try:
        model = option_model(record).model_validate(dict(values))
    except ValidationError as error:
        found = _one_branch(record, error.errors(include_url=False))
        return None, [_diagnostic(record, item, sources or {}, at) for item in found]
    return model, []


def option_problem(option: OptionSpec, value: Any) -> str | None:
    """Why a value does not fit an option, or None."""
    from pydantic import ValidationError

    try:
        _kept(option, option.name, {option.name: option}).model_validate({option.name: value})
    except ValidationError as error:
        return _message(option, error.errors(include_url=False)[0])
    return None


def _kept(owner: Any, name: str, options: Mapping[str, OptionSpec]) -> Any:
    found = _models.get(id(owner))
    if found is None:
        found = _models[id(owner)] = (owner, _build(name, options))
    return found[1]


def _build(name: str, options: Mapping[str, OptionSpec]) -> Any:
    from pydantic import AfterValidator, BeforeValidator, create_model

    from specdec.config.language.option_values import OptionValues

    fields: dict[str, Any] = {}
    for key, option in options.items():
        kind = _annotated(option)
        default = list(option.default) if isinstance(option.default, (list, tuple)) else option.default
        if option.required and "null" not in option.types:
            fields[key] = (Annotated[kind, AfterValidator(freeze)], ...)  # type: ignore[valid-type, unused-ignore]
        else:
            # null equals absent: the default takes its place
            checked: Any = Annotated[kind | None, BeforeValidator(_absent(default)), AfterValidator(freeze)]  # type: ignore[valid-type, unused-ignore]
            fields[key] = (checked, freeze(default))
    return create_model(f"{name}_options", __base__=OptionValues, **fields)


def _absent(default: Any) -> Any:
    return lambda value: default if value is None else value


def _annotated(option: OptionSpec) -> Any:
    limits = {"ge": option.minimum, "le": option.maximum, "gt": option.exclusive_minimum}
    types = [kind for kind in option.types if kind != "null"]
    kinds = [_kind(kind, _present(limits), option.items, option.properties, option.name) for kind in types]
    annotation = kinds[0]
    for kind in kinds[1:]:
        annotation = annotation | kind
    if option.enum is not None:
        from pydantic import AfterValidator

        annotation = Annotated[annotation, AfterValidator(_one_of(tuple(option.enum), len(types) > 1))]
    return annotation


def _one_of(choices: tuple[Any, ...], words_only: bool) -> Any:
    def check(value: Any) -> Any:
        if words_only and not isinstance(value, str):
            return value
        # True == 1 in Python, so the type is compared too
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError("must be one of: " + _listed(choices))
        return value

    return check


def _kind(
    kind: str,
    limits: Mapping[str, Any],
    items: Mapping[str, Any] | None,
    properties: Mapping[str, Any] | None,
    name: str,
) -> Any:
    from pydantic import BeforeValidator, Field

    if kind == "integer":
        return Annotated[int, BeforeValidator(_whole), Field(**limits)]
    if kind == "number":
        return Annotated[float, BeforeValidator(_finite), Field(**limits)]
    if kind == "string":
        return str
    if kind == "boolean":
        return bool
    if kind == "array":
        return list[_from_schema(items or {}, name)]  # type: ignore[misc]
    if properties:
        return _object(properties, (), name)
    return dict[str, Any]


def _from_schema(schema: Mapping[str, Any], name: str) -> Any:
    """The type of a draft-07 schema of items or properties: the keywords that records use."""
    from pydantic import Field

    if "type" not in schema:
        return Any
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    limits = {"ge": schema.get("minimum"), "le": schema.get("maximum"), "gt": schema.get("exclusiveMinimum")}
    present = _present(limits)
    annotation: Any = None
    for kind in types:
        if kind == "array":
            lengths = {"min_length": schema.get("minItems"), "max_length": schema.get("maxItems")}
            part = Annotated[list[_from_schema(schema.get("items", {}), name)], Field(**_present(lengths))]  # type: ignore[misc, valid-type]
        elif kind == "object" and "properties" in schema and schema.get("additionalProperties") is False:
            part = _object(schema["properties"], schema.get("required", ()), name)
        elif kind == "object":
            part = _open_object(schema.get("required", ()))
        elif kind == "null":
            part = None
        else:
            part = _kind(kind, present, None, None, name)
        annotation = part if annotation is None else annotation | part
    return annotation


def _present(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in limits.items() if value is not None}


def _object(properties: Mapping[str, Any], required: Any, name: str) -> Any:
    from pydantic import create_model

    from specdec.config.language.option_values import OptionValues

    fields: dict[str, Any] = {
        key: (_from_schema(part, key), ...) if key in required else (_from_schema(part, key) | None, None)
        for key, part in properties.items()
    }
    return create_model(name, __base__=OptionValues, **fields)


def _open_object(required: Any) -> Any:
    from pydantic import AfterValidator

    def check(value: dict[str, Any]) -> dict[str, Any]:
        missing = [key for key in required if key not in value]
        if missing:
            raise ValueError(f"needs {', '.join(missing)}")
        return value

    return Annotated[dict[str, Any], AfterValidator(check)]


def _whole(value: Any) -> Any:
    """JSON does not tell 8.0 from 8."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _one_branch(record: SpeculatorRecord, errors: list[Any]) -> list[Any]:
    """Of an option with several types pydantic reports each; the deepest location is the branch that was meant."""
    kept: dict[str, list[Any]] = {}
    for error in errors:
        kept.setdefault(str(error["loc"][0]), []).append(error)
    result = []
    for name, group in kept.items():
        option = record.options.get(name)
        several = option is not None and len([kind for kind in option.types if kind != "null"]) > 1
        result += [max(group, key=lambda e: len(e["loc"]))] if several else group
    return result


def _diagnostic(record: SpeculatorRecord, error: Any, sources: Mapping[str, Source], at: str) -> Diagnostic:
    location = [part for part in error["loc"] if isinstance(part, int) or not _is_branch(part, record)]
    name = str(location[0])
    path = at
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    option = record.options.get(name)
    kind = error["type"]
    source = sources.get(name)
    if kind == "extra_forbidden":
        return _unknown(record, location, path, source)
    if option is None or kind == "missing":
        return Diagnostic(
            "missing-required", "error", path, f"{record.name} needs {path.rsplit('.', 1)[-1]}", f"set {path}", source
        )
    code = _CODES.get(kind, "unknown-value" if kind == "value_error" and option.enum else "wrong-type")
    return Diagnostic(
        code, "error", path, f"{name} is {_short(error['input'])}; {_message(option, error)}", _fix(option), source
    )


def _unknown(record: SpeculatorRecord, location: list[Any], path: str, source: Source | None) -> Diagnostic:
    from specdec.config.findings.suggest import nearest

    names = list(record.options)
    if len(location) > 1:
        names = list((record.options[str(location[0])].properties or {}).keys())
    near = nearest(str(location[-1]), names)
    fix = f"did you mean '{near}'?" if near else "remove it; known: " + ", ".join(names)
    return Diagnostic("unknown-key", "error", path, f"'{location[-1]}' is not an option of {record.name}", fix, source)


def _is_branch(part: str, record: SpeculatorRecord) -> bool:
    """Pydantic puts the branch of a union into the location; it is no key of the user's file."""
    return "[" in part or part in ("int", "float", "str", "bool", "dict", "list")


def _message(option: OptionSpec, error: Any) -> str:
    kind = error["type"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("greater_than_equal", "less_than_equal", "greater_than"):
        words = {"greater_than_equal": "at least", "less_than_equal": "at most", "greater_than": "greater than"}
        return f"must be {words[str(kind)]} {next(iter(error['ctx'].values())):g}"
    if kind == "finite_number":
        return "must be finite"
    if kind in ("too_short", "too_long"):
        return str(error["msg"]).lower().replace(" after validation", "")
    return "must be " + " or ".join(_WORDS[kind] for kind in option.types if kind != "null")


def _fix(option: OptionSpec) -> str:
    if option.enum is not None:
        return "use one of: " + _listed(option.enum)
    low, high = option.minimum, option.maximum
    if low is not None and high is not None:
        return f"use a value from {low:g} to {high:g}"
    if low is not None:
        return f"use a value of at least {low:g}"
    return "use " + " or ".join(_WORDS[kind] for kind in option.types if kind != "null")


def _listed(choices: tuple[Any, ...]) -> str:
    words = {True: "true", False: "false"}
    return ", ".join(words[c] if isinstance(c, bool) else str(c) for c in choices if c is not None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
