"""Keys of a draft's config that nothing reads: a new flag of a trainer must not be dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specdec.config.checkpoint.checks.context import CheckContext, finding
from specdec.config.checkpoint.checks.standard_keys import STANDARD_KEYS
from specdec.config.checkpoint.checks.training import TRAINED
from specdec.config.checkpoint.facts.keys import WRAPPERS
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.findings.suggest import nearest

# Maps that other tools own as a whole; what stands inside says nothing about the draft's computation.
OPAQUE = ("speculators_config", TRAINED)


def check_unknown(context: CheckContext) -> Iterator[Diagnostic]:
    """``known_keys``: keys that may stand in the config although no fact reads them; without it nothing is checked."""
    extra = context.rules.get("known_keys")
    if extra is None:
        return
    known = {
        *STANDARD_KEYS,
        *extra,
        TRAINED,
        "speculators_config",
        "speculators_version",
        *(part for fact in context.record.facts.values() for part in _paths(fact.keys)),
    }
    known |= {key for row in context.record.rewrites for key in (*row.copy.values(), *row.set)}
    for key in _keys(context.checkpoint.config, known):
        close = nearest(key.rsplit(".", 1)[-1], [k.rsplit(".", 1)[-1] for k in known])
        hint = f"; {close} is known" if close else ""
        message = f"{key} = {_shown(context.checkpoint.config, key)} is not read by {context.record.name}{hint}"
        fix = "check what the trainer means by it; a flag that is not read changes what the draft computes"
        yield finding("unknown-checkpoint-field", f"draft.{key}", message, fix, "warning")


def _keys(config: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    """Unknown keys of the top level, of wrapped configs, and of maps that facts look into."""
    parents = {key.rsplit(".", 1)[0] for key in known if "." in key}
    for key, value in config.items():
        if value is None or str(key).startswith("_"):
            continue
        if key in WRAPPERS and isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in _keys(value, known))
        elif key not in known:
            yield str(key)
        elif key in parents and key not in OPAQUE and key not in STANDARD_KEYS and isinstance(value, Mapping):
            inner_known = known | STANDARD_KEYS
            yield from (
                f"{key}.{i}"
                for i, v in value.items()
                if v is not None and f"{key}.{i}" not in known and i not in inner_known
            )


def _paths(keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        if not key.startswith("tensor:"):
            steps = key.split("[")[0].split(".")
            yield from (".".join(steps[:n]) for n in range(1, len(steps) + 1))


def _shown(config: Mapping[str, Any], key: str) -> str:
    from specdec.config.checkpoint.facts.keys import lookup

    text = repr(lookup(config, key))
    return text if len(text) <= 40 else text[:37] + "..."
