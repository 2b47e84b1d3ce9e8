"""Running ``specdec bench``: load the modes, measure, print the report and write the files."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

PLAIN, CONTROL = "plain", "plain again"


def bench(
    args: argparse.Namespace,
    configs: list[tuple[str, Any]],
    items: list[Any],
    arguments: list[str],
    external: list[Any],
) -> int:
    """Load, measure, print and write."""
    from specdec.bench import machine, report
    from specdec.bench.external import open_peers
    from specdec.bench.files import ready
    from specdec.bench.ours import EngineMode, engine_modes
    from specdec.bench.peers import peer_modes
    from specdec.bench.prompts import tokenize
    from specdec.bench.session import Plan
    from specdec.bench.startup import measure_startup
    from specdec.bench.summary import summarize

    try:
        ready(args.output)
    except OSError as error:
        print(f"specdec bench: error: cannot write {args.output}: {error.strerror}", file=sys.stderr)
        return 2
    repeats = min(args.peer_repeats or args.repeats, args.repeats)
    plan = Plan(
        args.temperatures, args.max_tokens, args.repeats, args.seed,
        peer_repeats=repeats, until_decided=args.until_decided,
    )  # fmt: skip
    batch_plan = replace(plan, repeats=args.batch_repeats or min(args.repeats, 3))
    first = configs[0][1]
    startup = measure_startup(arguments) if args.startup and not args.multirun else {}
    ours = engine_modes(configs, PLAIN)
    if args.control:
        ours.append(EngineMode(CONTROL, ours[0].llm, None))
    target = ours[0].llm.target
    if target.tokenizer is None:
        print(f"specdec bench: error: {first.target['model']} has no tokenizer", file=sys.stderr)
        return 1
    prompts = tokenize(items, target.tokenizer, args.raw)
    peers = peer_modes(
        [name for name in args.peers if name not in {spec.name for spec in external}],
        str(target.path),
        target.dtype,
        args.lookup,
    )
    longest = max(len(p.token_ids) for p in prompts) + args.max_tokens
    load = {
        "model": str(target.path),
        "dtype": str(target.dtype).removeprefix("torch."),
        "max_model_len": max(1024, -(-longest // 512) * 512),  # few values: peers may compile for each anew
        "max_num_seqs": max([8, *args.batches]),
    }
    opened = open_peers(external, args.lookup, args.output, args.peer_timeout, load, _say)
    for failure in opened.failures:
        _say(f"error: {failure}")
    modes = [*ours, *peers, *opened.modes]
    results = report.Results(
        command=shlex.join(["specdec", "bench", *sys.argv[2:]]),
        machine=machine.describe(),
        settings={
            "max_tokens": plan.max_tokens,
            "repeats": plan.repeats,
            "peer_repeats": plan.peer_repeats,
            "batch_repeats": batch_plan.repeats,
            "seed": plan.seed,
            "dtype": str(target.dtype),
        },
        startup=startup,
        reference=next((m.name for m in peers if m.num_drafts is None), None),
        peers=opened.engines,
        peer_names=[m.name for m in modes if m.peer],
        failures=opened.failures,
    )
    try:
        ended = _measure(results, modes, prompts, plan, args.batches, batch_plan)
    finally:
        for mode in opened.modes:
            mode.close()
        if results.samples:  # also what there was before an error
            results.rows = summarize(results.samples, PLAIN, results.reference)
            _write(results, {m.name: m.num_drafts for m in modes}, args.output, not args.no_plot)
    return ended or (1 if results.failures else 0)


def _write(results: Any, num_drafts: dict[str, int | None], folder: Path, with_plot: bool) -> None:
    from specdec.bench import files, report

    print(report.text(results))
    paths = files.write(results, folder)
    if with_plot:
        paths += _plot(results.rows, num_drafts, folder / "plot.png")
    print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)


def _measure(
    results: Any, modes: list[Any], prompts: list[Any], plan: Any, batches: tuple[int, ...], batch_plan: Any
) -> int:
    """Fill in the samples and the throughput; an engine's error or an interrupt ends it with what there is."""
    from specdec.bench.batches import measure_batches
    from specdec.bench.progress import Progress
    from specdec.bench.samples import ModeFailed, Sample
    from specdec.bench.session import count, measure
    from specdec.errors import EngineError

    able = [mode for mode in modes if hasattr(mode, "generate_together")]
    progress = Progress(count(modes, prompts, plan) + count(able, batches, batch_plan))

    def keep(sample: Sample) -> None:
        results.samples.append(sample)
        progress.step(sample)

    def leave(failure: ModeFailed) -> None:
        results.failures.append(str(failure))
        progress.say(f"specdec bench: error: {failure}")

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit also leaves a report
    try:
        measure(modes, prompts, plan, keep, leave)
        still = [mode for mode in able if not any(f.startswith(f"{mode.name}: ") for f in results.failures)]
        measure_batches(still, prompts, batches, batch_plan, progress.advance, leave, results.throughput)
    except EngineError as error:
        results.failures.append(str(error))
        progress.say(f"specdec bench: error: {error}")
        return 1
    except KeyboardInterrupt:
        results.failures.append("interrupted")
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.close()
    return 0


def _say(text: str) -> None:
    print(f"specdec bench: {text}", file=sys.stderr, flush=True)


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
