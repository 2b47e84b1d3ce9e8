"""The summary after generation: speed and acceptance, side by side when there were two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.config.speculative import SpeculativeConfig

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

    def pooled(self) -> tuple[int, int, list[int], list[int]]:
        """(rounds, accepted, drafted per position, accepted per position) over all completions."""
        stats = [completion.speculation for completion in self.completions]
        width = max((len(s.drafted_per_position) for s in stats), default=0)
        drafted, accepted = [0] * width, [0] * width
        for s in stats:
            for i, (d, a) in enumerate(zip(s.drafted_per_position, s.accepted_per_position, strict=True)):
                drafted[i] += d
                accepted[i] += a
        return sum(s.rounds for s in stats), sum(s.accepted for s in stats), drafted, accepted


def summary(runs: Sequence[Run], config: SpeculativeConfig | None) -> str:
    """A small table: one column a run."""
    rows: list[tuple[str, list[str]]] = [
        ("", [run.label for run in runs]),
        ("tokens", [str(run.tokens) for run in runs]),
        ("tokens/s", [f"{run.tokens_per_second:.1f}" for run in runs]),
    ]
    if config is not None:
        lengths = []
        for run in runs:
            rounds, accepted, _, _ = run.pooled()
            lengths.append(f"{1 + accepted / rounds:.2f}" if rounds and accepted else "1.00")
        rows.append(("mean accepted length", lengths))
    lines = [f"{name:<{WIDTH}}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows]
    if config is not None:
        _, _, drafted, accepted = runs[0].pooled()
        shares = [f"{a / d:.2f}" for a, d in zip(accepted, drafted, strict=True) if d]
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
