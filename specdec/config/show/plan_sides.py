"""Settings that target and draft both have, side by side, with the rule that says whether the draft inherits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.config.findings.diagnostics import Origin
from specdec.config.merge.inherit import SETTINGS

# settings whose rule stands in the records, then what the draft's own files always decide
OWN_RULES = {**SETTINGS, "max_model_len": "max_model_len", "hf_overrides": "hf_overrides"}
ROPE = ("rope_type", "rope_theta")


@dataclass(frozen=True)
class SideRow:
    """One setting: the draft's value and its origin, the target's value, and the rule between them."""

    path: str
    value: Any
    target: Any
    rule: str
    origin: Origin | None

    @property
    def matters(self) -> bool:
        """Whether either side says anything that a reader would miss."""
        quiet: tuple[Any, ...] = (None, "auto", False, {}, ())
        return self.value not in quiet or self.target not in quiet


def sides(config: SpeculativeConfig) -> Iterator[SideRow]:
    """A row for each setting that the draft has; nothing without a draft."""
    if config.draft.get("model") is None:
        return
    same = bool(config.draft.get("same_checkpoint"))
    for setting, option in OWN_RULES.items():
        spec = config.record.options.get(option)
        if spec is None:
            continue
        path = f"draft.{setting}"
        value = config.draft.get(setting) if setting in config.draft else config.options.get(option)
        origin = config.provenance.get(path) or config.provenance.get(f"speculative.{option}")
        yield SideRow(path, value, config.target.get(setting), rule_text(spec.inherit, same), origin)
    for setting in ROPE:
        if setting in config.draft:
            origin = config.provenance.get(f"draft.{setting}")
            yield SideRow(
                f"draft.{setting}", config.draft[setting], config.target.get(setting), "never inherited", origin
            )


def rule_text(inherit: str, same_checkpoint: bool) -> str:
    """The record's rule as it applies here."""
    if inherit == "target":
        return "inherited unless set"
    if inherit == "same_checkpoint":
        return "inherited: one checkpoint" if same_checkpoint else "not inherited: the draft has its own files"
    return "never inherited"
