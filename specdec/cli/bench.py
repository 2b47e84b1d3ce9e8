"""``specdec bench``: measure speed and acceptance, side by side in one run."""

from __future__ import annotations

import argparse
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
  specdec bench --repeats 41 --until-decided --peers none       which prompts are slower than plain decoding?
  specdec bench --peers vllm,vllm+ngram --lookup 4 --peer-python vllm=/opt/vllm/bin/python --repeats 9 --peer-repeats 2

A peer that lives in another interpreter is named BASE[-LABEL][+ngram]: BASE chooses its Python and its script (packaged:
vllm), +ngram runs it once per k of --lookup. It is stopped while others are measured.

writes results.json, samples.csv, summary.csv, paired.csv, report.md and, with matplotlib, plot.png to the output folder;
also when a peer fails, a run has errors or is interrupted: then with what was measured so far.
exit codes: 0 fine, 1 the configuration, a run or a peer has errors, 2 something could not be read"""
PEERS = ("transformers", "transformers-float32", "lookup", "flashspec")


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
        help=f"other engines to compare with: {', '.join(PEERS)}, one of another interpreter (see below), or none "
        "(default: transformers,lookup)",
    )  # fmt: skip
    parser.add_argument(
        "--peer-repeats", type=_positive, metavar="N", help="runs of the peers (default: as many as --repeats)"
    )
    for name, value, what in (
        ("--peer-python", "BASE=PYTHON", "interpreter of a peer (or the variable SPECDEC_<BASE>_PYTHON)"),
        ("--peer-script", "BASE=FILE", "worker script of a peer that none is packaged for"),
        (
            "--peer-options",
            "NAME=JSON",
            'what a peer\'s engine gets beside the model, e.g. \'vllm={"dtype": "float32"}\'',
        ),
    ):
        parser.add_argument(name, type=_assignment, action="append", default=[], metavar=value, help=what)
    parser.add_argument(
        "--peer-timeout", type=_positive, default=600, metavar="S", help="seconds a peer may take (default: 600)"
    )
    parser.add_argument(
        "--until-decided", action="store_true",
        help="leave a prompt out of further repeats when it is clear whether our modes are slower by more than 3 %%",
    )  # fmt: skip
    parser.add_argument("--control", action="store_true", help="also run plain decoding twice: what noise looks like")
    parser.add_argument(
        "--lookup", type=_counts, default=(3, 10), metavar="K,..", help="k of the peers (default: 3,10)"
    )
    parser.add_argument(
        "--batches", type=_counts, default=(), metavar="N,..", help="also measure throughput, e.g. 1,8,32"
    )
    parser.add_argument(
        "--batch-repeats", type=_positive, metavar="N", help="runs of each batch (default: --repeats, at most 3)"
    )
    parser.add_argument("--startup", action="store_true", help="also time start-up, with warm and with empty caches")
    parser.add_argument("--raw", action="store_true", help="do not use the tokenizer's chat template")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, default=Path("bench-results"), metavar="DIR", help="default: bench-results"
    )
    parser.add_argument("--no-plot", action="store_true", help="write no plot.png")


def run(args: argparse.Namespace) -> int:
    from specdec.bench.external import PeerError, specs
    from specdec.bench.prompts import BenchPromptError, read
    from specdec.cli.resolving import resolve_all
    from specdec.config.read.overrides import OverrideError

    files, overrides = split_arguments(args.items)
    if len(files) > 1:
        print(f"specdec bench: error: one file at a time, got {', '.join(files)}", file=sys.stderr)
        return 2
    if args.batches and not any(o.lstrip("+").startswith("engine.max_num_seqs=") for o in overrides):
        overrides.append(f"engine.max_num_seqs={max(args.batches)}")
    try:
        items = read(args.prompts, args.limit)
        chosen = [name for name in args.peers if name not in PEERS]
        external = specs(chosen, dict(args.peer_python), dict(args.peer_script), dict(args.peer_options), PEERS)
        resolved = list(resolve_all(files[0] if files else None, overrides, multirun=args.multirun))
    except (BenchPromptError, PeerError) as error:
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
    from specdec.cli.benchmark import bench
    from specdec.errors import EngineError

    try:
        return bench(args, configs, items, [*files, *overrides], external)
    except (EngineError, StartupError) as error:
        print(f"specdec bench: error: {error}", file=sys.stderr)
        return 1


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
    for name in names:
        if not name.replace("-", "").replace("+", "").replace("_", "").isalnum():
            raise argparse.ArgumentTypeError(f"{name!r} is no name of a peer; there are: {', '.join(PEERS)}, none")
    return names


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
