"""The summary after generation: speed and acceptance, side by side when there were two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.engine.metrics import SpeculationCounts

WIDTH = 26


@dataclass
class Run:
    """Outputs of all prompts in one mode."""

    label: str
    outputs: Sequence[Any]
    seconds: float

    @property
    def completions(self) -> list[Any]:
        return [completion for output in self.outputs for completion in output.outputs]

    @property
    def tokens(self) -> int:
        return sum(len(completion.token_ids) for completion in self.completions)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def pooled(self) -> SpeculationCounts:
        """The counts of all completions together."""
        total = SpeculationCounts()
        for completion in self.completions:
            total.add(completion.speculation)
        return total


def summary(runs: Sequence[Run], config: SpeculativeConfig | None) -> str:
    """A small table: one column a run."""
    rows: list[tuple[str, list[str]]] = [
        ("", [run.label for run in runs]),
        ("tokens", [str(run.tokens) for run in runs]),
        ("tokens/s", [f"{run.tokens_per_second:.1f}" for run in runs]),
    ]
    if config is not None:
        rows.append(("tokens per target step", [_number(run.pooled().mean_emitted_per_step) for run in runs]))
        rows.append(("mean accepted length", [_number(run.pooled().mean_accepted_length) for run in runs]))
    lines = [f"{name:<{WIDTH}}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows]
    if config is not None:
        shares = [f"{share:.2f}" for share in runs[0].pooled().acceptance_per_position]
        lines.append(f"{'acceptance per position':<{WIDTH}}  {' '.join(shares) or 'nothing was drafted'}")
        if config.verification.get("guarantee") not in (None, "lossless"):
            lines.append("LOSSY: the output distribution is not the target's")
    if len(runs) == 2 and runs[1].tokens_per_second:
        lines.append(f"speed-up {runs[0].tokens_per_second / runs[1].tokens_per_second:.2f}x")
        same = [a.token_ids == b.token_ids for a, b in zip(runs[0].completions, runs[1].completions, strict=True)]
        lines.append(
            f"same text in {sum(same)} of {len(same)} (bfloat16 may differ where two tokens are nearly equal; float32 does not)"
        )
    return "\n" + "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
