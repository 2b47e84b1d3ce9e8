"""``specdec plan``: the finalized configuration, where each value came from, and what speculation changes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from specdec.cli.common import (
    OVERRIDE_HELP,
    add_config_arguments,
    exit_code,
    print_findings,
    split_arguments,
    wants_colour,
)
from specdec.config.final.speculative_config import Resolution

HELP = "show the finalized configuration, where each value came from, and what it costs"
DESCRIPTION = """Resolve a configuration against its checkpoints (config.json and tensor headers only; no weights are loaded) and
show what will run: every value with its origin, the values it beat, the wiring, and what changes in the engine.
Without FILE the packaged default is used."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec plan run.yaml
  specdec plan run.yaml speculative.num_speculative_tokens=6 --format json
  specdec plan run.yaml -m speculative.num_speculative_tokens=1,3,5

exit codes: 0 fine, 1 problems found (or, with --strict, warnings), 2 a file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser, "configuration file (absent: the packaged default)")
    parser.add_argument(
        "--format", choices=("text", "yaml", "json"), default="text", help="output format (default: text)"
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="expand comma-separated values in overrides: one plan each"
    )
    parser.add_argument(
        "--all", action="store_true", help="also show defaults and dimensions (yaml and json always do)"
    )
    parser.add_argument("--strict", action="store_true", help="treat guesses and other warnings as errors")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.resolving import resolve_all, with_checkpoints

    files, overrides = split_arguments(args.items)
    if len(files) > 1:
        print(f"specdec plan: error: one file at a time, got {', '.join(files)}", file=sys.stderr)
        return 2
    runs = resolve_all(files[0] if files else None, overrides, multirun=args.multirun, strict=args.strict)
    code, documents = 0, []
    for label, resolved in runs:
        resolution = with_checkpoints(resolved, args.strict)
        code = max(code, exit_code(resolution.diagnostics, args.strict))
        if args.format == "text":
            _print_text(label, resolution, args.all)
        else:
            documents.append({**({"overrides": label} if label else {}), **_document(resolution)})
    if args.format != "text":
        _print_documents(documents if args.multirun else documents[0], args.format)
    return code


def _print_text(label: list[str], resolution: Resolution, everything: bool) -> None:
    from specdec.config.show.plan import make_plan
    from specdec.config.show.plan_text import plan_text

    if label:
        print(f"=== {' '.join(label)}")
    if resolution.config is None:
        print_findings(resolution.diagnostics)
    else:
        print(plan_text(make_plan(resolution, everything), colour=wants_colour(sys.stdout)))
    if label:
        print()


def _document(resolution: Resolution) -> dict[str, Any]:
    from specdec.config.findings.render import to_dict
    from specdec.config.show.plan import make_plan

    if resolution.config is None:
        return {"format": "specdec/plan/1", "diagnostics": [to_dict(d) for d in resolution.diagnostics]}
    return make_plan(resolution, True).to_dict()


def _print_documents(document: Any, form: str) -> None:
    if form == "json":
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    import yaml

    print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120), end="")
