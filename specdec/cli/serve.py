"""``specdec serve``: start another engine's server with a configuration."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from specdec.cli.common import OVERRIDE_HELP, exit_code, print_findings

HELP = "start another engine's server for a configuration"
DESCRIPTION = """Resolve a configuration, write it as the flags of vLLM or SGLang (see 'specdec export') and start that engine's server
in place of this process. What the engine would reject or silently ignore is refused before anything starts."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec serve --engine vllm run.yaml
  specdec serve --engine vllm run.yaml --dry-run          print the command instead

exit codes: 1 the configuration has errors or the engine would ignore something, 2 the engine is not installed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from specdec.config.export import engines

    parser.add_argument("items", nargs="*", metavar="FILE|KEY=VALUE", help="configuration file, and overrides")
    parser.add_argument("--engine", choices=engines(), required=True, help="the engine to start")
    parser.add_argument("--version", metavar="X.Y", help="the engine's version")
    parser.add_argument("--dry-run", action="store_true", help="print the command and stop")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.resolving import resolve_one
    from specdec.config.export import export

    resolution = resolve_one("serve", args.items)
    if resolution is None:
        return 2
    findings = [d for d in resolution.diagnostics if d.severity != "note"]
    result = export(resolution.config, args.engine, args.version) if resolution.config is not None else None
    print_findings([*findings, *(result.diagnostics if result else ())], stream=sys.stderr)
    if result is None or not result.ok:
        return exit_code([*findings, *(result.diagnostics if result else ())])
    if args.dry_run:
        print(result.shell())
        return 0
    program = result.command[0]
    if shutil.which(program) is None:
        print(
            f"specdec serve: error: '{program}' is not installed here; add --dry-run to see the command",
            file=sys.stderr,
        )
        return 2
    sys.stdout.flush()
    try:
        os.execvp(program, [*result.command, *result.args])
    except OSError as error:
        print(f"specdec serve: error: '{program}' cannot be started: {error.strerror}", file=sys.stderr)
        return 2
