"""``specdec generate``: run prompts with the embedded engine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from specdec.cli.common import OVERRIDE_HELP, exit_code, print_findings
from specdec.config.final.speculative_config import SpeculativeConfig
from specdec.config.findings.diagnostics import Diagnostic

HELP = "generate text with the embedded engine"
DESCRIPTION = """Generate text for prompts from --prompt, --prompts FILE (JSON lines) or standard input. Text goes to standard
output as it comes; speed and acceptance go to standard error. Without FILE the packaged default is used."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec generate --prompt "Why is the sky blue?"
  specdec generate run.yaml speculative.num_speculative_tokens=6 --prompts questions.jsonl --json
  echo "Name three rivers." | specdec generate run.yaml sampling.temperature=0.8 sampling.seed=7
  specdec generate run.yaml --prompt "Hello" --compare      with and without speculation, side by side

exit codes: 0 fine, 1 the configuration or a request has errors, 2 something could not be read"""
KEYS = ("prompt", "prompt_token_ids", "messages", "turns", "text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument("--prompt", action="append", default=[], help="a prompt; may be given several times")
    parser.add_argument(
        "--prompts", metavar="FILE", help=f"JSON lines, each a string or an object with one of: {', '.join(KEYS)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a request")
    parser.add_argument("--raw", action="store_true", help="do not use the tokenizer's chat template")
    parser.add_argument("--no-speculation", action="store_true", help="decode plainly: the baseline")
    parser.add_argument("--compare", action="store_true", help="run with and without speculation and show both")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no summary")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.prompts import PromptFileError, read_prompts
    from specdec.cli.resolving import resolve_one

    resolution = resolve_one("generate", args.items)
    if resolution is None:
        return 2
    findings = [d for d in resolution.diagnostics if d.severity != "note"]
    print_findings(findings, stream=sys.stderr)
    if resolution.config is None:
        return exit_code(findings)
    config = resolution.config
    refused = refusals(config, speculate=not args.no_speculation)
    if refused:
        print_findings(refused, stream=sys.stderr)
        return 1
    try:
        prompts = read_prompts(args.prompt, args.prompts, sys.stdin)
    except PromptFileError as error:
        print(f"specdec generate: error: {error}", file=sys.stderr)
        return 2
    from specdec.engine.sampling.sampling_params import SamplingParamsError
    from specdec.errors import EngineError

    try:
        return generate(args, config, prompts)
    except (EngineError, SamplingParamsError) as error:
        print(f"specdec generate: error: {error}", file=sys.stderr)
        return 1


def json_text(values: dict[str, Any], encoding: str | None) -> str:
    """One line of JSON; characters are escaped only where ``encoding`` lacks one (half of a surrogate pair, too)."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(values)
    return text


def refusals(config: SpeculativeConfig, speculate: bool = True) -> list[Diagnostic]:
    """What the embedded engine cannot do of this configuration, with the places where it is written."""
    from specdec.config.final.embedded_refusals import embedded_findings, plain_findings

    findings = embedded_findings(config) if speculate else plain_findings(config)
    return [d for d in findings if d.severity == "error"]


def generate(args: argparse.Namespace, config: SpeculativeConfig, prompts: list[Any]) -> int:
    """Load the engine, run the prompts, print outputs and the summary."""
    from specdec.cli import generation
    from specdec.cli.generation_report import Run, summary

    params = generation.sampling_params(config)
    modes = [False] if args.no_speculation else [True, False] if args.compare else [True]
    runs: list[Run] = []
    llm = generation.load(config, speculate=modes[0])
    if len(modes) > 1:  # neither run should pay for first calls
        generation.run_prompts(
            llm, prompts[:1], params.replace(n=1, max_tokens=2), True, chat=not args.raw, stream=False
        )
    for speculate in modes:
        label = config.method if speculate else "no speculation"
        generation.choose(llm, params, speculate)
        shown = (
            args.json or not runs
        )  # the text of the second run of a comparison is the same kind of text: not repeated
        outputs, seconds = generation.run_prompts(
            llm, prompts, params, speculate, chat=not args.raw, stream=shown and not args.json,
            label=None if args.quiet else label,
        )  # fmt: skip
        if args.json and not runs:
            for output in outputs:
                print(json_text(output.to_dict(), sys.stdout.encoding), flush=True)
        runs.append(Run(label, outputs, seconds))
    if not args.quiet:
        print(summary(runs, config if runs[0].label == config.method else None), file=sys.stderr)
    failed = [output for output in runs[0].outputs if output.error is not None]
    for output in failed:
        print(f"specdec generate: error: {output.request_id}: {output.error}", file=sys.stderr)
    return 1 if failed else 0
