"""``specdec export``: the flags of another engine for a configuration."""

from __future__ import annotations

import argparse
import sys

from specdec.cli.common import OVERRIDE_HELP, print_findings

HELP = "print the flags of another engine for a configuration"
DESCRIPTION = """Resolve a configuration and write it as vLLM or SGLang flags: names and units converted, and refused, with the
reason, what that engine would reject or silently ignore."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec export vllm run.yaml
  specdec export sglang run.yaml --format yaml
  specdec export vllm run.yaml --format yaml > vllm.yaml        for: vllm serve --config vllm.yaml
  specdec export vllm run.yaml --format json --part speculative --version 0.33

exit codes: 0 fine, 1 the engine would refuse or ignore something, 2 a file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from specdec.config.export import engines

    parser.add_argument("engine", choices=engines(), help="the engine to write for")
    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument(
        "--format",
        choices=("shell", "json", "yaml", "args"),
        default="shell",
        help="one command line, a file of settings, or one argument a line (default: shell)",
    )
    parser.add_argument(
        "--part",
        choices=("file", "speculative"),
        default="file",
        help="for json and yaml: a whole configuration file of the engine, or its speculative settings alone (default: file)",
    )
    parser.add_argument(
        "--version", metavar="X.Y", help="the engine's version (default: the one the tables were made for)"
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.common import exit_code
    from specdec.cli.resolving import resolve_one, with_checkpoints
    from specdec.config.export import export

    resolution = resolve_one("export", args.items, strict=args.strict)
    if resolution is None:
        return 2
    resolution = with_checkpoints(resolution, args.strict)
    if resolution.config is None:
        print_findings(resolution.diagnostics, stream=sys.stderr)
        return exit_code(resolution.diagnostics, args.strict)
    result = export(resolution.config, args.engine, args.version)
    findings = [*(d for d in resolution.diagnostics if d.severity != "note"), *result.diagnostics]
    print_findings(findings, stream=sys.stderr)
    code = exit_code(findings, args.strict)
    if code == 0:
        print(rendered(result, args.format, args.part))
    return code


def rendered(result: object, form: str, part: str = "file") -> str:
    """The outcome as one shell command, as the engine's settings, or one argument a line."""
    from specdec.config.export import Exported

    assert isinstance(result, Exported)
    settings = result.document if part == "file" else result.settings
    if form in ("json", "yaml"):
        from specdec.config.export.encode import json_text, yaml_text

        return json_text(settings) if form == "json" else yaml_text(settings)
    return result.shell() if form == "shell" else "\n".join(result.args)
