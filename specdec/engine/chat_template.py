"""Chat templates are programs of the checkpoint: they run sandboxed, and stop when they take too long or grow too large.

transformers compiles and feeds the template; here it is compiled in an environment that counts every loop iteration and
every character made. The counts do not depend on the machine; the clock only guards what they cannot see.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

SECONDS = 3.0  # of one rendering
MOST_SOURCE = 1 << 20  # characters of a template
MOST_TEXT = 1 << 24  # characters of a rendered conversation
BUDGET = 1 << 27  # characters and steps of one rendering, intermediate values included
MOST_NUMBER = 100_000  # as a width or a count
MOST_BITS = 10_000  # of an integer
_PATCH = threading.RLock()  # the name inside transformers is shared by all threads
_WIDTH = re.compile(r"\d{6,}|%[^a-zA-Z%]*\*")  # in a format string


class TemplateLimit(Exception):
    """A template asked for more than one rendering may take."""


class _Meter:
    def __init__(self) -> None:
        self.left, self.end = BUDGET, time.monotonic() + SECONDS

    def spend(self, amount: float) -> None:
        self.left -= amount
        if self.left < 0:
            raise TemplateLimit("it makes too many or too long texts")
        if time.monotonic() > self.end:
            raise TemplateLimit(f"it runs for more than {SECONDS:g} s")


_meter: ContextVar[_Meter] = ContextVar("meter")


@contextmanager
def bounded_templates() -> Iterator[None]:
    """While it lasts, chat templates that transformers runs here raise ``TemplateLimit`` when they go too far."""
    from transformers.utils import chat_template_utils as stock

    with _PATCH:
        token, before = _meter.set(_Meter()), stock._compile_jinja_template
        if not isinstance(before, _Compiler):
            stock._compile_jinja_template = _Compiler(before)
        try:
            yield
        finally:
            stock._compile_jinja_template = before
            _meter.reset(token)


class _Compiler:
    """Compiles a template like ``stock``, in an environment that counts."""

    def __init__(self, stock: Callable[[str], Any]) -> None:
        self.stock = stock

    def __call__(self, source: str) -> _Template:
        return _compile(self.stock, source)


@functools.lru_cache(maxsize=8)
def _compile(stock: Callable[[str], Any], source: str) -> _Template:
    if len(source) > MOST_SOURCE:
        raise TemplateLimit(f"it has {len(source)} characters, more than {MOST_SOURCE}")
    given = stock("").environment  # compiling the source itself there would already compute its constants
    environment = _Environment(
        trim_blocks=given.trim_blocks,
        lstrip_blocks=given.lstrip_blocks,
        extensions=[type(extension) for extension in given.extensions.values()],
        finalize=_measured,
    )
    environment.globals.update(given.globals)
    environment.filters.update({name: _bounded(function, name == "format") for name, function in given.filters.items()})
    environment.filters.update(metered_items=_items, metered_concat=_concat)
    return _Template(environment.from_string(source))


class _Template:
    """What transformers renders."""

    def __init__(self, template: Any) -> None:
        self.template = template

    def render(self, **values: Any) -> str:
        pieces, length = [], 0
        for piece in self.template.generate(**values):
            pieces.append(piece)
            length += len(piece)
            _meter.get().spend(1 + len(piece))
            if length > MOST_TEXT:
                raise TemplateLimit(f"its text has more than {MOST_TEXT} characters")
        return "".join(pieces)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> Any:
        return super()._generate(_Counting().visit(source), *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _meter.get().spend(_cost(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(*args: Any, **kwargs: Any) -> Any:
        self, context, function, *rest = args
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        _check(
            [*([owner] if isinstance(owner, (str, bytes)) else []), *rest, *kwargs.values()],
            formats=getattr(method, "__name__", "") in ("format", "format_map"),
        )
        return _measured(ImmutableSandboxedEnvironment.call(self, context, function, *rest, **kwargs))


class _Counting(NodeTransformer):
    """Loops over counted items; joins by ``~`` through a filter, because no hook sees them."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "metered_items", [nodes.Const(1 + text)], [], None, None).set_lineno(
            node.lineno
        )
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        listed = nodes.List(node.nodes).set_lineno(node.lineno)
        return nodes.Filter(listed, "metered_concat", [], [], None, None).set_lineno(node.lineno)


def _items(values: Iterable[Any], cost: int) -> Iterable[Any]:
    """The items of a loop, each for ``cost``."""
    meter = _meter.get()
    for value in values:
        meter.spend(cost)
        yield value


def _concat(values: list[Any]) -> str:
    return "".join(str(_measured(value)) for value in values)


def _bounded(function: Callable[..., Any], formats: bool) -> Callable[..., Any]:
    """A filter whose arguments and result are measured; marks of jinja on the function stay."""

    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0  # the environment or the context
        _check([*args[skip:], *kwargs.values()], formats)
        return _measured(function(*args, **kwargs))

    return filtered


def _cost(operator: str, left: Any, right: Any) -> float:
    """Characters and steps of an operation, before it is done."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(1, right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MOST_BITS:
            raise TemplateLimit("it computes with huge numbers")
        return 1
    if operator == "%" and isinstance(left, str):
        _check([left, right], formats=True)
    sizes = [len(v) for v in (left, right) if isinstance(v, (str, bytes, list, tuple))]
    if operator == "*" and sizes:
        return sizes[0] * max(1, next((v for v in (left, right) if isinstance(v, int)), 1))
    return 1 + sum(sizes)


def _check(values: Sequence[Any], formats: bool = False) -> None:
    """Refuse arguments that could blow up inside one call: the sizes multiply in the worst case."""
    product = 1
    for value in values:
        if isinstance(value, int) and abs(value) > MOST_NUMBER:
            raise TemplateLimit(f"it passes a number above {MOST_NUMBER}")
        if isinstance(value, str) and formats and _WIDTH.search(value):
            raise TemplateLimit("it formats with a huge width")
        if isinstance(value, (list, tuple, Mapping)):
            _measured(value)
            if formats:
                _check(list(value.values()) if isinstance(value, Mapping) else value, formats)
        product *= max(1, _size(value))
    if product > BUDGET:
        raise TemplateLimit("it makes too long texts")
    _meter.get().spend(1)


def _size(value: Any) -> int:
    """By how much a call may multiply what else it gets; an iterator may be as long as the longest range."""
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, Sized) else MOST_NUMBER if isinstance(value, Iterator) else 1


def _measured(value: Any) -> Any:
    """``value``, once what its text would take is spent; shared parts of nested values count as often as they occur."""
    spend, waiting = _meter.get().spend, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (str, bytes)):
            spend(1 + len(one))
        elif isinstance(one, Mapping):
            spend(1)
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            spend(1)
            waiting += one
        elif isinstance(one, int):
            spend(1 + one.bit_length() * math.log10(2))
        else:
            spend(1)
    return value
