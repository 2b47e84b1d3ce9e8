"""A commented starting configuration for a record."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from specdec.config.record_types import OptionSpec, SpeculatorRecord

SHOWN = 5  # options a newcomer can take in at once


def template(record: SpeculatorRecord, target: str, model: str | None, registry: Any) -> str:
    """YAML text for ``specdec init``: required values filled in, the record's own options as comments."""
    from specdec.cli.init import MODELINE

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
    lines += [f"  # {o.name}: {_scalar(o.default)}  # {o.summary}" for o in _own_options(record, registry)]
    lines += ["sampling:", "  temperature: 0.0", "  max_tokens: 128", ""]
    return "\n".join(lines)


def _own_options(record: SpeculatorRecord, registry: Any) -> list[OptionSpec]:
    """The options worth showing first: those that the fewest methods have, which make this one what it is."""
    skipped = {"method", "model", "num_speculative_tokens"}
    shared = Counter(name for other in registry.records.values() for name in other.options)
    own = [o for o in record.options.values() if o.name not in skipped and not o.required and o.status != "deprecated"]
    return sorted(own, key=lambda option: shared[option.name])[:SHOWN]


def _scalar(value: Any) -> str:
    """A value as YAML that fits on one line."""
    if isinstance(value, str):
        plain = (
            value and all(c.isalnum() or c in "./_-" for c in value) and value.lower() not in ("true", "false", "null")
        )
        return value if plain else json.dumps(value)
    return json.dumps(value)
