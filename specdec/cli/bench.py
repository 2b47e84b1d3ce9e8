"""``specdec bench``: measure speed and acceptance, side by side in one run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from specdec.cli.common import OVERRIDE_HELP, exit_code, print_findings, split_arguments

HELP = "measure speed and acceptance"
DESCRIPTION = """Run prompts in several modes of decoding, every prompt in every mode before the next one, and print medians and
ranges. Modes: plain decoding, the speculator of FILE (with -m: one per combination of the swept overrides), and peers
on the same weights. Without FILE the packaged default is used; without --prompts ten packaged prompts, one per kind."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec bench
  specdec bench run.yaml -m speculative.num_speculative_tokens=1,2,4,8 --peers none
  specdec bench run.yaml --prompts questions.jsonl --temperatures 0 --batches 1,8,32 --startup

writes results.json, samples.csv, summary.csv, report.md and, with matplotlib, plot.png to the output folder.
exit codes: 0 fine, 1 the configuration or a run has errors, 2 something could not be read"""
PEERS = ("transformers", "lookup", "flashspec")
PLAIN = "plain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument("-m", "--multirun", action="store_true", help="one mode per combination of swept overrides")
    parser.add_argument(
        "--prompts", action="append", default=[], metavar="FILE", help="JSON lines with prompt or turns"
    )
    parser.add_argument("--limit", type=_positive, metavar="N", help="use the first N prompts of each file")
    parser.add_argument("--max-tokens", type=_positive, default=128, metavar="N", help="tokens a prompt (default: 128)")
    parser.add_argument("--temperatures", type=_numbers, default=(0.0, 0.8), metavar="T,..", help="default: 0,0.8")
    parser.add_argument("--repeats", type=_positive, default=1, metavar="N", help="runs of the whole set (default: 1)")
    parser.add_argument(
        "--peers", type=_peers, default=("transformers", "lookup"), metavar="NAME,..",
        help=f"other engines to compare with: {', '.join(PEERS)} or none (default: transformers,lookup)",
    )  # fmt: skip
    parser.add_argument(
        "--lookup", type=_counts, default=(3, 10), metavar="K,..", help="k of the peers (default: 3,10)"
    )
    parser.add_argument(
        "--batches", type=_counts, default=(), metavar="N,..", help="also measure throughput, e.g. 1,8,32"
    )
    parser.add_argument("--startup", action="store_true", help="also time start-up, with warm and with empty caches")
    parser.add_argument("--raw", action="store_true", help="do not use the tokenizer's chat template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, default=Path("bench-results"), metavar="DIR", help="default: bench-results"
    )
    parser.add_argument("--no-plot", action="store_true", help="write no plot.png")


def run(args: argparse.Namespace) -> int:
    from specdec.bench.prompts import BenchPromptError, read
    from specdec.cli.resolving import resolve_all
    from specdec.config.overrides import OverrideError

    files, overrides = split_arguments(args.items)
    if len(files) > 1:
        print(f"specdec bench: error: one file at a time, got {', '.join(files)}", file=sys.stderr)
        return 2
    if args.batches and not any(o.lstrip("+").startswith("engine.max_num_seqs=") for o in overrides):
        overrides.append(f"engine.max_num_seqs={max(args.batches)}")
    try:
        items = read(args.prompts, args.limit)
        resolved = list(resolve_all(files[0] if files else None, overrides, multirun=args.multirun))
    except BenchPromptError as error:
        print(f"specdec bench: error: {error}", file=sys.stderr)
        return 2
    except OverrideError as error:
        print_findings(error.diagnostics, stream=sys.stderr)
        return 1
    findings = [d for _, resolution in resolved for d in resolution.diagnostics if d.severity != "note"]
    print_findings(list(dict.fromkeys(findings)), stream=sys.stderr)
    if any(resolution.config is None for _, resolution in resolved):
        return exit_code(findings)
    from specdec.cli.generate import refusals

    configs = [(_label(swept, resolution.config), resolution.config) for swept, resolution in resolved]
    for _, config in configs:
        refused = refusals(config)
        if refused:
            print_findings(refused, stream=sys.stderr)
            return 1
    from specdec.bench.startup import StartupError
    from specdec.engine.errors import EngineError

    try:
        return bench(args, configs, items, [*files, *overrides])
    except (EngineError, StartupError) as error:
        print(f"specdec bench: error: {error}", file=sys.stderr)
        return 1


def bench(args: argparse.Namespace, configs: list[tuple[str, Any]], items: list[Any], arguments: list[str]) -> int:
    """Load, measure, print and write."""
    from specdec.bench import machine, report
    from specdec.bench.ours import engine_modes
    from specdec.bench.peers import peer_modes
    from specdec.bench.progress import Progress
    from specdec.bench.prompts import tokenize
    from specdec.bench.session import Plan, count, measure, measure_batches
    from specdec.bench.startup import measure_startup
    from specdec.bench.summary import summarize

    plan = Plan(args.temperatures, args.max_tokens, args.repeats, args.seed)
    first = configs[0][1]
    startup = measure_startup(arguments) if args.startup and not args.multirun else {}
    ours = engine_modes(configs, PLAIN)
    target = ours[0].llm.target
    if target.tokenizer is None:
        print(f"specdec bench: error: {first.target['model']} has no tokenizer", file=sys.stderr)
        return 1
    peers = peer_modes(args.peers, str(target.path), target.dtype, args.lookup)
    modes = [*ours, *peers]
    prompts = tokenize(items, target.tokenizer, args.raw)
    batches = len(args.batches) * len(ours) * len(args.temperatures)
    progress = Progress(count(modes, prompts, plan) + batches)
    reference = next((m.name for m in peers if m.num_drafts is None), None)
    try:
        samples = measure(modes, prompts, plan, progress.step)
        batched = measure_batches(
            ours,
            prompts,
            args.batches,
            plan,
            lambda t: progress.advance(f"{t.mode}, batch {t.batch}: {t.tokens_per_second:.1f} tokens/s"),
        )
    finally:
        progress.close()
    results = report.Results(
        command=shlex.join(["specdec", "bench", *sys.argv[2:]]),
        machine=machine.describe(),
        settings={
            "max_tokens": plan.max_tokens,
            "repeats": plan.repeats,
            "seed": plan.seed,
            "dtype": str(target.dtype),
        },
        samples=samples,
        rows=summarize(samples, PLAIN, reference),
        throughput=batched,
        startup=startup,
        reference=reference,
    )
    print(report.text(results))
    paths = report.write(results, args.output)
    if not args.no_plot:
        paths += _plot(results.rows, {m.name: m.num_drafts for m in modes}, args.output / "plot.png")
    print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    return 0


def _plot(rows: list[Any], num_drafts: dict[str, Any], path: Path) -> list[Path]:
    from specdec.bench.plot import plot

    try:
        return [path] if plot(rows, num_drafts, path) else []
    except ModuleNotFoundError as error:
        print(
            f"specdec bench: no plot: {error.name} is missing (pip install 'declarative-specdec[plot]')",
            file=sys.stderr,
        )
        return []


def _label(swept: list[str], config: Any) -> str:
    """Method and k, and what else was swept."""
    own = ("speculative.num_speculative_tokens=", "speculative.method=", "speculative=", "engine.max_num_seqs=")
    more = [o.removeprefix("speculative.") for o in swept if not o.lstrip("+").startswith(own)]
    return " ".join([config.method, f"k={config.num_speculative_tokens}", *more])


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    values = tuple(float(part) for part in text.split(","))
    if any(not 0 <= value < 100 for value in values):
        raise argparse.ArgumentTypeError(f"temperatures are numbers of at least 0, got {text}")
    return values


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(text.split(",")) if text != "none" else ()
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown peer {unknown[0]!r}; there are: {', '.join(PEERS)}, none")
    return names
