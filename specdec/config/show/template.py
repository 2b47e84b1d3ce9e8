"""A commented starting configuration for a record."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from specdec.config.language.record import OptionSpec, SpeculatorRecord

MODELINE = "# yaml-language-server: $schema=config.schema.json\n"
WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")  # not text for some reader of YAML
SHOWN = 5  # options a newcomer can take in at once


def template(record: SpeculatorRecord, target: str, model: str | None, registry: Any) -> str:
    """YAML text for ``specdec init``: required values filled in, the record's own options as comments."""
    draft = record.options.get("model")
    lines = [
        MODELINE.rstrip("\n"),
        f"# {record.title}: {record.summary}",
        "schema_version: 1",
        "target:",
        f"  model: {_scalar(target)}",
        "speculative:",
        f"  method: {record.name}",
    ]
    if model or (draft is not None and draft.required):
        lines.append(f"  model: {_scalar(model or './draft')}  # {draft.summary if draft else ''}".rstrip(" #"))
    elif draft is not None:
        lines.append(f"  # model: ./draft  # {draft.summary}")
    k = record.defaults.get("num_speculative_tokens")
    if k is None or isinstance(k, int):
        lines.append(f"  num_speculative_tokens: {k or 4}  # drafted tokens per round")
    else:
        lines.append(
            "  # num_speculative_tokens: 4  # drafted tokens per round; absent means what the checkpoint was trained for"
        )
    lines += [
        f"  {o.name}: {_scalar(o.examples[0])}"
        for o in record.options.values()
        if o.required and o.examples and o.name != "model"
    ]
    lines += [f"  # {o.name}: {_scalar(_shown(o))}  # {o.summary}" for o in _own_options(record, registry)]
    lines += ["sampling:", "  temperature: 0.0", "  max_tokens: 128", ""]
    return "\n".join(lines)


def _own_options(record: SpeculatorRecord, registry: Any) -> list[OptionSpec]:
    """The options worth showing first: those that the fewest methods have, which make this one what it is."""
    skipped = {"method", "model", "num_speculative_tokens"}
    shared = Counter(name for other in registry.records.values() for name in other.options)
    own = [o for o in record.options.values() if o.name not in skipped and not o.required and o.status != "deprecated"]
    return sorted(own, key=lambda option: shared[option.name])[:SHOWN]


def _shown(option: OptionSpec) -> Any:
    """The default, or an example where the default says nothing."""
    return option.examples[0] if option.default is None and option.examples else option.default


def _scalar(value: Any) -> str:
    """A value as YAML that fits on one line."""
    if isinstance(value, str):
        plain = re.fullmatch(r"\.{0,2}/?[A-Za-z][\w./-]*", value) and value.lower() not in WORDS
        return value if plain else json.dumps(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_scalar(item)}' for key, item in value.items())}}}"
    return json.dumps(value)
