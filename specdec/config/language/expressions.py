"""Expressions of the records: CEL with declared types, compiled when first needed.

Everything that knows the CEL package is in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from specdec.config.language import functions
from specdec.config.language.record import FactSpec, OptionSpec, SpeculatorRecord, Variable


class _Missing:
    """A value that is not known; rules that need it are skipped."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_ERROR = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_UNKNOWN = re.compile(r"undeclared reference to '([^']*)'")
_ABSENT = ("No value with name", "Key not found in map", "no such key", "no tensor")


class ExpressionError(ValueError):
    """An expression that does not compile, or fails on the values it gets; ``column`` counts from 1 in the expression."""

    def __init__(self, expression: str, message: str, column: int = 1, code: str = "expression") -> None:
        self.expression, self.message, self.column, self.code = expression, message, column, code
        super().__init__(f"{message} (in: {expression})")


@dataclass(frozen=True)
class Compiled:
    """A compiled expression, its result type (``bool``, ``int`` ...) and the names it reads."""

    run: Any
    type: str
    names: tuple[str, ...]  # declared names, without those asked for by known.*
    asked: tuple[str, ...]  # names whose presence is asked for by known.*


class Scope:
    """The names an expression may use, with their types; compiles and evaluates."""

    def __init__(self, types: Mapping[str, str], defaults: Mapping[str, Any] | None = None) -> None:
        self.types = dict(types)
        self.defaults = {name: value for name, value in (defaults or {}).items() if value is not None}
        self._compiled: dict[str, Compiled] = {}
        self._env: Any = None

    def compile(self, expression: str) -> Compiled:
        """Type-check and compile; raises ``ExpressionError`` with a column."""
        found = self._compiled.get(expression)
        if found is None:
            try:
                run = self._environment().compile(expression)
            except RuntimeError as error:
                raise self._problem(expression, str(error)) from None
            found = Compiled(run, run.return_type().name().lower(), *self._names(expression))
            self._compiled[expression] = found
        return found

    def evaluate(self, expression: str, values: Mapping[str, Any]) -> Any:
        """The value of an expression, or ``MISSING`` when a value it needs is absent or None.

        ``values`` are keyed by dotted name (``draft.block_size``). Raises ``ExpressionError`` for a fault such as a division by zero.
        """
        compiled = self.compile(expression)
        data: dict[str, Any] = {}
        for name in compiled.names:
            value = self._value(name, values)
            if value is not None:
                data[name] = value
        for name in compiled.asked:
            data[f"known.{name}"] = self._value(name, values) is not None
        try:
            result = compiled.run.eval(data=data)
        except RuntimeError as error:  # the budget of iterations ran out, or a value is none that CEL has
            raise ExpressionError(expression, str(error).split(": ", 1)[-1]) from None
        kind = result.type().name()
        if kind == "NULL":
            return None  # never through plain_value(): its null gives away a reference that it does not own
        if kind == "ERROR":
            reason = str(result.value())
            if any(text in reason for text in _ABSENT):
                return MISSING
            raise ExpressionError(expression, reason.split(": ", 1)[-1])
        return result.plain_value()

    def holds(self, expression: str | None, values: Mapping[str, Any]) -> bool | _Missing:
        """A condition: absent means it holds; MISSING when it cannot be decided."""
        if expression is None:
            return True
        result = self.evaluate(expression, values)
        return result if isinstance(result, (bool, _Missing)) else MISSING

    def text(self, template: str, values: Mapping[str, Any]) -> str:
        """A message with every ``{expression}`` replaced by its value; an unknown value shows as ``?``."""
        return _PLACEHOLDER.sub(lambda match: shown(self.evaluate(match[1], values)), template)

    def inputs(self, expression: str) -> tuple[str, ...]:
        """The declared names an expression reads, in order of first use: what a derived value came from."""
        return self.compile(expression).names

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        value = values.get(name)
        if value is None:
            value = self.defaults.get(name)
        value = plain(value)
        return value if fits(value, self.types[name]) else None

    def _names(self, expression: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names: dict[str, None] = {}
        asked: dict[str, None] = {}
        for match in _NAME.finditer(_QUOTED.sub("''", expression)):
            parts = match[0].split(".")
            into, offset = (asked, 1) if parts[0] == "known" else (names, 0)
            for end in range(len(parts), offset, -1):
                name = ".".join(parts[offset:end])
                if name in self.types:
                    into[name] = None
                    break
        return tuple(names), tuple(asked)

    def _environment(self) -> Any:
        if self._env is None:
            self._env = _new_environment(self.types)
        return self._env

    def _problem(self, expression: str, reason: str) -> ExpressionError:
        match = _ERROR.search(reason)
        message, column = (match[3], int(match[2])) if match else (reason, 1)
        unknown = _UNKNOWN.search(message)
        if unknown:
            return self._unknown(expression, unknown[1], column)
        message = message.removesuffix(" [INVALID_ARGUMENT]")
        code = "expression-syntax" if message.startswith("Syntax error") else "expression-type"
        message = (
            message.replace("found no matching overload for", "no operation").replace("_", "")
            if code == "expression-type"
            else message
        )
        return ExpressionError(expression, message, column, code)

    def _unknown(self, expression: str, name: str, column: int) -> ExpressionError:
        from specdec.config.findings.suggest import nearest

        dotted = next(
            (m for m in _NAME.finditer(expression) if m[0].startswith(name) or m.start() < column <= m.end()), None
        )
        written = dotted[0] if dotted else name
        bare = written.removeprefix("known.")
        near = nearest(bare, self.types)
        hint = f"; did you mean '{near}'?" if near else ""
        return ExpressionError(
            expression, f"unknown name '{written}'{hint}", dotted.start() + 1 if dotted else column, "unknown-name"
        )


def placeholders(template: str) -> Iterable[tuple[int, str]]:
    """The expressions inside a message, each with its offset."""
    return ((match.start(1), match[1]) for match in _PLACEHOLDER.finditer(template))


def shown(value: Any) -> str:
    """A value inside a message."""
    if value is MISSING:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value)


def plain(value: Any) -> Any:
    """Tuples as lists and mappings as dicts without their nulls, all the way down."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def fits(value: Any, kind: str) -> bool:
    """Whether a value has the declared type; one that has not is treated as absent, its own error stands elsewhere."""
    if value is None:
        return False
    if kind == "any":
        return True
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "map":
        return isinstance(value, dict)
    inner = kind.removeprefix("list<").removesuffix(">")
    return isinstance(value, list) and all(fits(item, inner) for item in value)


def option_type(option: OptionSpec) -> str:
    """The expression type of an option; one that may have several types is ``any``."""
    types = [name for name in option.types if name != "null"]
    return schema_type(types[0], option.items) if len(types) == 1 else "any"


def schema_type(kind: str, items: Mapping[str, Any] | None) -> str:
    """The expression type of a JSON Schema type."""
    if kind == "array":
        inner = (items or {}).get("type")
        return f"list<{schema_type(inner, (items or {}).get('items'))}>" if isinstance(inner, str) else "list<any>"
    return "map" if kind == "object" else kind


def record_scope(record: SpeculatorRecord, variables: Mapping[str, Variable]) -> Scope:
    """What the expressions of a record may use: the shared variables, its options, facts, capabilities and numbers."""
    types = {name: variable.type for name, variable in variables.items()}
    types |= fact_types(record.facts)
    types |= {f"options.{name}": option_type(option) for name, option in record.options.items()}
    types |= {f"capabilities.{name}": "boolean" for name in record.capabilities}
    types |= {f"numbers.{name}": "integer" for name in record.derive}
    defaults = {name: variable.default for name, variable in variables.items()}
    defaults |= {f"draft.{name}": fact.default for name, fact in record.facts.items() if fact.default is not None}
    defaults |= {f"options.{name}": option.default for name, option in record.options.items()}
    defaults |= {f"capabilities.{name}": value for name, value in record.capabilities.items()}
    types["draft.config_hash"] = "string"
    return Scope(types, defaults)


def identity_scope(facts: Mapping[str, FactSpec], variables: Mapping[str, Variable]) -> Scope:
    """What ``declares`` may use: facts that every checkpoint is asked for, before a method is known."""
    types = {name: variable.type for name, variable in variables.items() if name.startswith("draft.")} | fact_types(
        facts
    )
    defaults = {name: variable.default for name, variable in variables.items()}
    return Scope(types, defaults | {f"draft.{name}": fact.default for name, fact in facts.items()})


def fact_types(facts: Mapping[str, FactSpec]) -> dict[str, str]:
    """Dotted name -> type of a record's facts."""
    return {f"draft.{name}": fact.type for name, fact in facts.items()}


def _new_environment(types: Mapping[str, str]) -> Any:
    from cel_expr_python import cel  # type: ignore[import-untyped, unused-ignore]

    variables = {name: _cel_type(kind) for name, kind in types.items()}
    variables |= {f"known.{name}": cel.Type.BOOL for name in types}
    return cel.NewEnv(variables=variables, functions=_functions())


@lru_cache(maxsize=1)
def _functions() -> list[Any]:
    from cel_expr_python import cel  # type: ignore[import-untyped, unused-ignore]

    declared = []
    for name, (parameters, result, run) in functions.FUNCTIONS.items():
        overload = cel.Overload(
            f"specdec_{name}", _cel_type(result), [_cel_type(kind) for kind in parameters], False, run
        )
        declared.append(cel.FunctionDecl(name, [overload]))
    return declared


@lru_cache(maxsize=64)
def _cel_type(kind: str) -> Any:
    from cel_expr_python import cel  # type: ignore[import-untyped, unused-ignore]

    simple = {
        "integer": cel.Type.INT,
        "number": cel.Type.DOUBLE,
        "string": cel.Type.STRING,
        "boolean": cel.Type.BOOL,
        "any": cel.Type.DYN,
    }
    if kind in simple:
        return simple[kind]
    if kind == "map":
        return cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.Type.List(_cel_type(kind.removeprefix("list<").removesuffix(">")))
