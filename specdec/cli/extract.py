"""``specdec extract``: hidden states of a target over prompts, as files that draft trainers read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from specdec.cli.common import OVERRIDE_HELP, exit_code, print_findings, split_arguments
from specdec.config.final.speculative_config import Resolution, SpeculativeConfig

HELP = "write a target's hidden states over prompts, to train drafts on"
DESCRIPTION = """Run the target over prompts and write one file a prompt: its tokens, a loss mask and the hidden states of
the chosen layers, in the layout of a trainer. The target answers prompts as the sampling: section says; conversations
that end with an assistant's turn are only read. Files appear whole; started again, the command makes what is missing.
The target:, engine: and sampling: sections of FILE count; a speculative: block for another method does not."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec extract run.yaml --prompts texts.jsonl --output states
  specdec extract run.yaml --prompts texts.jsonl --output states 'speculative.aux_layers=[2,15,27,30]'
  specdec extract run.yaml --prompts texts.jsonl --output states speculative.output_layout=specforge

exit codes: 0 fine, 1 the configuration or a prompt has errors, 2 something could not be read"""
DRAFTS = "proposes_draft_tokens"  # the capability that only the record which writes states lacks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument(
        "--prompts", metavar="FILE", help="JSON lines, as of 'specdec generate'; - reads standard input"
    )
    parser.add_argument("--prompt", action="append", default=[], help="a prompt; may be given several times")
    parser.add_argument("--output", metavar="DIR", required=True, help="the folder to fill, or to go on with")
    parser.add_argument("--raw", action="store_true", help="do not use the tokenizer's chat template for plain text")
    parser.add_argument("--prompt-only", action="store_true", help="read the prompts and generate nothing")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.generate import refusals
    from specdec.cli.prompts import PromptFileError, read_prompts

    resolution = resolve_extraction(args.items, args.output)
    if resolution is None:
        return 2
    findings = [d for d in resolution.diagnostics if d.severity != "note"]
    print_findings(findings, stream=sys.stderr)
    if resolution.config is None:
        return exit_code(findings)
    if refused := refusals(resolution.config):
        print_findings(refused, stream=sys.stderr)
        return 1
    try:
        prompts = read_prompts(args.prompt, args.prompts, sys.stdin)
    except PromptFileError as error:
        print(f"specdec extract: error: {error}", file=sys.stderr)
        return 2
    from specdec.engine.sampling.sampling_params import SamplingParamsError
    from specdec.errors import EngineError

    try:
        return write(args, resolution.config, prompts)
    except (EngineError, SamplingParamsError) as error:
        print(f"specdec extract: error: {error}", file=sys.stderr)
        return 1


def resolve_extraction(items: Sequence[str], output: str) -> Resolution | None:
    """The configuration with the speculator that writes hidden states; None after a message for several files."""
    from specdec.cli.resolving import default_config, resolve_one
    from specdec.config.schema.checker import all_records

    files, overrides = split_arguments(items)
    registry = all_records()
    name = next(name for name, record in registry.records.items() if not record.capabilities.get(DRAFTS, True))
    block = block_of(files[0] if files else str(default_config()))
    if isinstance(block, list):
        print(f"specdec extract: error: {files[0]} lists a chain; take a file with one method or none", file=sys.stderr)
        return None
    chosen = [f"speculative={name}"]
    if isinstance(block, dict):
        try:
            own = registry.resolve_name(str(block.get("method", "")))[0].name == name
        except KeyError:  # a wrong name is told by the checks of the file; no name is no method
            own = "method" in block
        chosen = [] if own else [*chosen, *(f"~speculative.{key}" for key in block if key != "method")]
    return resolve_one("extract", [*files, *chosen, *overrides, f"speculative.output_dir={output!r}"])


def block_of(file: str) -> Any:
    """The ``speculative:`` block of a file; None where the file has none or is broken, which resolving tells better."""
    from specdec.config.read.source import load
    from specdec.config.read.source_faults import SourceError

    try:
        data = load(file).data
    except SourceError:
        return None
    return data.get("speculative") if isinstance(data, dict) else None


def write(args: argparse.Namespace, config: SpeculativeConfig, prompts: list[Any]) -> int:
    """Load the engine, run the prompts, print what was made."""
    from specdec.cli.extract_progress import ExtractionProgress
    from specdec.cli.generation import load, sampling_params
    from specdec.extract.run import extract

    llm = load(config, speculate=True)
    use_chat = not args.raw and bool(getattr(llm.tokenizer, "chat_template", None))
    progress = None if args.quiet else ExtractionProgress(len(prompts))
    try:
        params = sampling_params(config)
        done = extract(llm, prompts, params, use_chat=use_chat, prompt_only=args.prompt_only, on_step=progress)
    finally:
        if progress is not None:
            progress.close()
        llm.close()
    for index, reason in sorted(done.failed.items()):
        print(f"specdec extract: error: prompt {index}: {reason}", file=sys.stderr)
    tokens, boundaries = sum(done.written.values()), " ".join(map(str, llm.speculator.boundaries))
    kept = f", {len(done.kept)} were there" if done.kept else ""
    print(f"{args.output}: {len(done.written)} samples, {tokens} tokens, boundaries {boundaries}{kept}")
    return 1 if done.failed else 0
