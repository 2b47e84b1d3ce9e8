"""Check a draft checkpoint against a target: plan it, load it, run ten prompts, compare its acceptance with what is published.

    python scripts/check_checkpoint.py DIR TARGET [--method M] [--k K] [--expected 0.46,0.47,0.50] [KEY=VALUE ...]

The figure to compare with is, in this order: ``--expected`` (the chance of each draft, given that those before it were accepted),
``acceptance.json`` beside the weights (of the ten packaged prompts), the record's ``expected_acceptance`` for this target.

Exit codes: 0 accepted as expected (or, where nothing is known to compare with, well above nothing), 1 the configuration or the
checkpoint has errors, or acceptance is too low, 2 something could not be read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

NOTHING, LITTLE = 0.05, 0.20  # shares of first drafts; trained drafts are far above, wrongly wired ones below
SHARE = 0.6  # of the published gain (tokens per round above 1) that other prompts must reach
HINTS = """what usually lies behind it:
  - the draft was trained for another fine-tune of this target
  - it reads other layers than it was trained on: look at 'aux hidden states' above; speculative.aux_layers changes them
  - a flag of its config.json is not the one it was trained with (norms, rotary base, vocabulary map)
  - prompts without the chat template it was trained on"""
GROUP = "ten kinds"  # the packaged prompts in acceptance.json


@dataclass(frozen=True)
class Expectation:
    """What is said about this draft: per position, or tokens per round only."""

    source: str
    tokens_per_round: float
    conditional: list[float] | None = None  # per position; None = only the mean is known, of other prompts
    prompts: str = ""


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    from specdec.cli.common import exit_code, print_findings
    from specdec.cli.generate import refusals
    from specdec.config.resolve.resolve import resolve
    from specdec.config.show.plan import make_plan
    from specdec.config.show.plan_text import plan_text

    speculative = {"model": args.draft, "method": args.method, "num_speculative_tokens": args.k}
    document = {
        "target": {"model": args.target},
        "speculative": {n: v for n, v in speculative.items() if v is not None},
    }
    resolution = resolve(document, args.overrides)
    print_findings(resolution.errors if resolution.config is None else (), stream=sys.stderr)
    if resolution.config is None:
        return exit_code(resolution.diagnostics)
    print(plan_text(make_plan(resolution)))
    if refused := refusals(resolution.config):
        print_findings(refused, stream=sys.stderr)
        return 1
    try:
        expected = expectation(args, resolution.config)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"check_checkpoint: error: the expected acceptance cannot be read: {error}", file=sys.stderr)
        return 2
    return measure_and_judge(args, resolution, expected)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("draft", metavar="DIR", help="the draft checkpoint")
    parser.add_argument(
        "target", metavar="TARGET", help="the target: directory, .gguf file, cached hub id or packaged name"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides, such as target.dtype=float32")
    parser.add_argument("--method", help="where the checkpoint does not say it")
    parser.add_argument("--k", type=int, help="drafted tokens per round; default: the record's")
    parser.add_argument("--expected", metavar="P,P,...", help="chance of each draft, given that those before it held")
    parser.add_argument("--prompts", type=Path, help="JSON lines instead of the packaged ten")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--raw", action="store_true", help="do not use the chat template")
    return parser.parse_intermixed_args(argv)


def measure_and_judge(args: argparse.Namespace, resolution: Any, expected: Expectation | None) -> int:
    """Load the engine, run the prompts, print the table and the verdict."""
    from specdec.bench.prompts import BenchPromptError, read, tokenize
    from specdec.engine.llm import LLM
    from specdec.engine.metrics import SpeculationCounts
    from specdec.engine.sampling.sampling_params import SamplingParams
    from specdec.errors import EngineError

    try:
        prompts = read([args.prompts] if args.prompts else [])
    except BenchPromptError as error:
        print(f"check_checkpoint: error: {error}", file=sys.stderr)
        return 2
    try:
        llm = LLM(speculative_config=resolution, adaptive_drafting=False)
        if llm.tokenizer is None:
            raise EngineError("this target has no tokenizer, so it cannot read the prompts")
        ids = [list(prompt.token_ids) for prompt in tokenize(prompts, llm.tokenizer, args.raw)]
        outputs = llm.generate(ids, SamplingParams(temperature=0.0, max_tokens=args.max_tokens))
        llm.close()
    except EngineError as error:
        print(f"check_checkpoint: error: {error}", file=sys.stderr)
        return 1
    counts = SpeculationCounts()
    for output in outputs:
        if output.error is not None:
            print(f"check_checkpoint: error: a prompt failed: {output.error}", file=sys.stderr)
            return 1
        counts.add(output.outputs[0].speculation)
    print(table(counts, expected))
    fine, verdict = judge(counts, expected)
    print(f"verdict: {verdict}" + ("" if fine else f"\n{HINTS}"))
    return 0 if fine else 1


def expectation(args: argparse.Namespace, config: Any) -> Expectation | None:
    """The figure to compare with; raises ``ValueError`` (or a relative) for one that cannot be read."""
    if args.expected is not None:
        chances = [float(word) for word in args.expected.split(",")]
        if not chances or not all(0 <= chance <= 1 for chance in chances):
            raise ValueError(f"--expected {args.expected}: chances lie between 0 and 1")
        return Expectation("--expected", tokens_per_round(chances), chances)
    path = Path(args.draft) / "acceptance.json"
    if path.is_file() and args.prompts is None:
        held = json.loads(path.read_text(encoding="utf-8")).get(GROUP, {}).get(f"k={config.num_speculative_tokens}")
        if held is not None:
            return Expectation(
                path.name, float(held["tokens_per_round"]), [float(p) for p in held["conditional_acceptance"]]
            )
    names = {Path(str(name)).name.lower() for name in (args.target, config.draft.get("verifier")) if name}
    rows = [row for row in config.record.expected_acceptance if row["target"].lower() in names]
    if not rows:
        return None
    lowest = min(rows, key=lambda row: row["tokens_per_round"])  # the packaged prompts are of many kinds
    return Expectation(lowest["source"], lowest["tokens_per_round"], prompts=lowest["prompts"])


def tokens_per_round(conditional: list[float]) -> float:
    """1 + the expected number of accepted drafts."""
    held, total = 1.0, 1.0
    for chance in conditional:
        held *= chance
        total += held
    return total


def shares(counts: Any) -> list[tuple[float, int]]:
    """(share accepted, drafts reached) of each position, given that the drafts before it were accepted."""
    reached, accepted = counts.reached_per_position, counts.accepted_per_position
    accepted = accepted + [0] * (len(reached) - len(accepted))
    return [(a / n if n else 0.0, n) for a, n in zip(accepted, reached, strict=True)]


def table(counts: Any, expected: Expectation | None) -> str:
    known = (expected.conditional if expected else None) or []
    lines = ["", f"{'position':>8} {'drafts':>7} {'accepted':>9} {'expected':>9}"]
    for i, (share, reached) in enumerate(shares(counts)):
        lines.append(f"{i + 1:>8} {reached:>7} {share:>9.3f} {f'{known[i]:.3f}' if i < len(known) else '-':>9}")
    said = (
        "nothing is published for this target"
        if expected is None
        else f"{expected.tokens_per_round:.2f}, {expected.source}"
    )
    said += f", {expected.prompts}" if expected is not None and expected.prompts else ""
    return "\n".join([*lines, f"tokens per round {counts.mean_accepted_length or 1.0:.2f} (expected: {said})", ""])


def judge(counts: Any, expected: Expectation | None) -> tuple[bool, str]:
    """(fine, verdict)."""
    measured = shares(counts)
    first = measured[0][0] if measured else 0.0
    if first < NOTHING:
        return (
            False,
            f"almost nothing is accepted ({first:.1%} of first drafts): this draft does not fit, or is wired wrongly",
        )
    if expected is not None and expected.conditional is not None:
        for i, ((share, n), chance) in enumerate(zip(measured, expected.conditional, strict=False)):
            middle = (chance * n + 2) / (n + 4)  # so that a chance of 0 or 1 is not taken for certain
            error = 3 * math.sqrt(middle * (1 - middle) / n) + 0.03 if n else 1.0
            if share < chance - error:
                return (
                    False,
                    f"position {i + 1} accepts {share:.3f} of {n}, below the expected {chance:.3f} by more than chance",
                )
        return True, "as expected at every position, within its error"
    gain = (counts.mean_accepted_length or 1.0) - 1
    if expected is not None:
        if gain < SHARE * (expected.tokens_per_round - 1):
            return False, f"{1 + gain:.2f} tokens per round, where {expected.tokens_per_round:.2f} are published"
        return True, f"in line with the published {expected.tokens_per_round:.2f} tokens per round"
    if first < LITTLE:
        return False, f"few drafts are accepted ({first:.1%} of first ones)"
    return True, f"drafts are accepted ({first:.1%} of first ones); there is no published figure to compare with"


if __name__ == "__main__":
    sys.exit(main())
