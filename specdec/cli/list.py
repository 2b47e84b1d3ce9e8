"""``specdec list``: every method, where it runs, and what it is compatible with."""

from __future__ import annotations

import argparse
import json

HELP = "list the methods and what they are compatible with"
DESCRIPTION = (
    "List every method: where it runs, what it needs besides the target, and which engine features it works with."
)
EPILOG = """examples:
  specdec list                         methods, and the compatibility matrix
  specdec list --features              the matrix alone
  specdec list --capabilities          the flags that engines ask
  specdec list --aliases               names that other engines use
  specdec list --format json

exit codes: 0 fine, 1 a records file was refused"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--features", action="store_true", help="which engine features each method works with")
    parser.add_argument("--capabilities", action="store_true", help="the capability flags of each method")
    parser.add_argument("--aliases", action="store_true", help="other names of each method")
    parser.add_argument("--records", action="append", default=[], metavar="FILE", help="also list the records of FILE")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")


def run(args: argparse.Namespace) -> int:
    from specdec.cli.registries import registry_with
    from specdec.config.show import matrix

    registry = registry_with(args.records, "list")
    if registry is None:
        return 1
    if args.format == "json":
        print(json.dumps(matrix.as_dict(registry), indent=2, ensure_ascii=False))
        return 0
    chosen = [name for name in ("features", "capabilities", "aliases") if getattr(args, name)]
    tables = {"features": matrix.features, "capabilities": matrix.capabilities, "aliases": matrix.aliases}
    texts = [tables[name](registry) for name in chosen] or [matrix.methods(registry), matrix.features(registry)]
    print("\n\n".join(texts))
    return 0
