"""What a plain scalar means: the YAML 1.2 core rules, so that the loader, the command line and editors agree."""

from __future__ import annotations

import math
import re
from typing import Any

_TAG = "tag:yaml.org,2002:"

# (tag, pattern, first characters); "" stands for the empty scalar
RULES: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    (_TAG + "null", re.compile(r"^(?:null|Null|NULL|~|)$"), ("n", "N", "~", "")),
    (_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), tuple("tTfF")),
    (_TAG + "int", re.compile(r"^(?:[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+)$"), tuple("-+0123456789")),
    (
        _TAG + "float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        tuple("-+.0123456789"),
    ),
    (_TAG + "merge", re.compile(r"^<<$"), ("<",)),
)

YAML_11_BOOLEANS = {"on": "true", "yes": "true", "y": "true", "off": "false", "no": "false", "n": "false"}
_INT64 = 2**63


def short_tag(tag: str) -> str:
    """``!!int`` for the core tag, the tag itself for any other."""
    return "!!" + tag[len(_TAG) :] if tag.startswith(_TAG) else tag


def convert(tag: str, text: str) -> Any:
    """The value of a scalar with a core tag.

    Raises ``KeyError`` for a tag that is not read, ``ValueError`` for text that the tag does not allow and
    ``OverflowError`` for a number that is not finite or does not fit in 64 bits.
    """
    if tag in (_TAG + "str", "!", _TAG + "merge"):
        return text
    if tag == _TAG + "null":
        return None
    if tag == _TAG + "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if tag == _TAG + "int":
        if len(text) > 64:
            raise OverflowError("does not fit in 64 bits")
        value = int(text, 0)
        if not -_INT64 <= value < _INT64:
            raise OverflowError("does not fit in 64 bits")
        return value
    if tag == _TAG + "float":
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            raise OverflowError("is not a finite number")
        return number
    raise KeyError(tag)


def value_hint(value: Any, types: tuple[str, ...]) -> str | None:
    """The fix for a value of the wrong type, when its text tells what was meant; ``types`` are JSON Schema names."""
    if isinstance(value, str):
        return _text_hint(value.strip(), types)
    if isinstance(value, bool):
        if "null" in types and not value and "boolean" not in types:
            return "write null, or leave the key out"
        if "integer" in types or "number" in types:
            return f"write {int(value)}"
        return f'write "{str(value).lower()}" in quotes' if "string" in types else None
    if isinstance(value, (int, float)):
        if types_only(types, "boolean") and value in (0, 1):
            return f"write {'true' if value else 'false'}"
        if "integer" in types and isinstance(value, float):
            return f"write a whole number, for example {max(round(value), 0)}"
        if "string" in types:
            return f'write "{value}" in quotes'
    if "array" in types and not isinstance(value, (list, dict)):
        return f"write a list: [{value}]"
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], (list, dict)):
        return f"write the value without brackets: {value[0]}"
    return None


def types_only(types: tuple[str, ...], name: str) -> bool:
    """Whether ``name`` is the only type allowed besides null."""
    return name in types and set(types) <= {name, "null"}


def _text_hint(text: str, types: tuple[str, ...]) -> str | None:
    lower = text.lower()
    if "boolean" in types and lower in YAML_11_BOOLEANS:
        return f"in YAML 1.2 '{text}' is a text; write {YAML_11_BOOLEANS[lower]}"
    if "boolean" in types and lower in ("true", "false"):
        return f"remove the quotes: {lower}"
    if "null" in types and lower in ("none", "nil", "null"):
        return "write null, or leave the key out"
    if lower in ("nan", "inf", "infinity", "-inf", "+inf") and ("number" in types or "integer" in types):
        return "write a finite number"
    if "integer" in types or "number" in types:
        return _number_hint(text)
    if "array" in types and "," in text:
        return f"write a list: [{', '.join(part.strip() for part in text.strip('[]').split(','))}]"
    if "array" in types:
        return f"write a list: [{text}]"
    if "object" in types and text.startswith("{"):
        return "write it as a mapping, without the quotes"
    return None


def _number_hint(text: str) -> str | None:
    if "${" in text:
        return "interpolations are not read; write the number"
    if re.fullmatch(r"[-+]?0[0-9]+", text):
        octal = f" (or 0o{text.lstrip('+-0')} for octal)" if re.fullmatch(r"[-+]?0[0-7]+", text) else ""
        return f"a leading zero makes it a text; write {int(text)}{octal}"
    if re.fullmatch(r"[-+]?[0-9][0-9_,]*", text) and ("_" in text or "," in text):
        return f"write {re.sub('[_,]', '', text)}"
    if re.fullmatch(r"[-+]?[0-9]+", text) or re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?", text):
        return f"remove the quotes: {text}"
    scale = {"k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
    unit = re.fullmatch(r"([0-9]+) ?([kKmMgG]i?)[bB]?", text)
    if unit:
        number, letter = int(unit[1]), unit[2].lower()
        binary = f" (or {number * scale[letter + 'i']})" if letter + "i" in scale else ""
        return f"write the number in full: {number * scale[letter]}{binary}"
    if re.fullmatch(r"[0-9]+(?::[0-9]+)+", text):
        return "write one number; digits with colons are a text in YAML 1.2"
    return None
