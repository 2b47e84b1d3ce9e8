"""What every check of a draft checkpoint looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.config.checkpoint.files.value import Checkpoint, Shape
from specdec.config.findings.diagnostics import Diagnostic, Found, Severity
from specdec.config.language.record import SpeculatorRecord


@dataclass(frozen=True)
class CheckContext:
    """Facts are canonical (see the record); ``shapes`` have normalised names and are None when not known."""

    record: SpeculatorRecord
    checkpoint: Checkpoint
    facts: Mapping[str, Found]
    shapes: Mapping[str, Shape] | None
    target_facts: Mapping[str, Found]
    chosen_layers: Sequence[int] | None = None  # boundary ids that the user chose

    @property
    def rules(self) -> Mapping[str, Any]:
        """The record's ``checkpoint.tensors`` section, which selects and feeds the checks."""
        return self.record.tensors

    @property
    def listing_is_whole(self) -> bool:
        """The listing has decoder layers, so a tensor that is not in it is not in the file."""
        return any(name.startswith("layers.") for name in self.shapes or ())

    def fact(self, name: str) -> Any:
        """The value of a fact, or None."""
        found = self.facts.get(name)
        return found.value if found else None

    def target(self, name: str) -> Any:
        """The value of a fact of the target, or None."""
        found = self.target_facts.get(name)
        return found.value if found else None

    def stated(self, name: str) -> bool:
        """Whether the fact stands in the config, rather than being a default."""
        found = self.facts.get(name)
        return found is not None and found.origin.kind == "checkpoint" and not found.origin.detail.startswith("tensor ")

    def at(self, name: str) -> str:
        """The path of a fact as the checkpoint writes it; its first known key when it does not."""
        found = self.facts.get(name)
        if found is not None and self.stated(name):
            return f"draft.{found.origin.detail}"
        spec = self.record.facts.get(name)
        keys = [key for key in (spec.keys if spec else ()) if not key.startswith("tensor:")]
        return f"draft.{keys[0] if keys else name}"


def finding(code: str, at: str, message: str, fix: str | None = None, severity: Severity = "error") -> Diagnostic:
    """A diagnostic at a checkpoint path."""
    return Diagnostic(code, severity, at, message, fix=fix)
