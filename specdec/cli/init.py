"""``specdec init``: write a first configuration file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.files import write_atomically

HELP = "write a first configuration file"
DESCRIPTION = "Write a commented configuration for a method. An existing file is never overwritten without --force."
EPILOG = """examples:
  specdec init run.yaml
  specdec init run.yaml --method eagle3 --target ./Qwen3-8B --model ./Qwen3-8B-eagle3
  specdec init - --method ngram         print it instead

exit codes: 0 written, 1 unknown method, 2 the file exists or cannot be written"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="specdec.yaml", help="file to write, '-' for standard output (default: specdec.yaml)"
    )
    parser.add_argument("--method", default="ngram", help="the speculator (default: ngram; see 'specdec list')")
    parser.add_argument("--target", default="SmolLM2-135M-Instruct", help="target checkpoint")
    parser.add_argument("--model", help="draft checkpoint, for a method that has one")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(args: argparse.Namespace) -> int:
    from specdec.config.records.registry import UnknownSpeculatorError, builtin
    from specdec.config.show.template import template

    try:
        registry = builtin()
        record, _ = registry.resolve_name(args.method)
    except UnknownSpeculatorError as error:
        print(f"specdec init: error: {error}", file=sys.stderr)
        return 1
    text = template(record, args.target, args.model, registry)
    if args.file == "-":
        sys.stdout.write(text)
        return 0
    path = Path(args.file)
    if path.is_symlink():
        print(f"specdec init: error: {path} is a link; name the file itself", file=sys.stderr)
        return 2
    if path.exists() and not args.force:
        print(
            f"specdec init: error: {path} exists; choose another name, or add --force to overwrite it", file=sys.stderr
        )
        return 2
    try:
        write_atomically(path, text)
    except OSError as error:
        print(f"specdec init: error: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {path}; next: specdec plan {path}")
    print("for completion in editors, beside it: specdec schema > config.schema.json")
    return 0
