"""``specdec schema``: print the JSON Schema for editors and CI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.config.records.data_files import schema_path

HELP = "print the JSON Schema for editors and CI"
DESCRIPTION = (
    """Print the JSON Schema of configuration files (draft-07 keywords, readable by editors and check-jsonschema)."""
)
EPILOG = """examples:
  specdec schema > config.schema.json
  specdec schema --records            the schema of speculators.yaml
  specdec schema --path               where the installed schema is, for an editor
  specdec schema --all                with the methods of installed packages

In a YAML file, this line connects an editor:
  # yaml-language-server: $schema=config.schema.json"""
NAMES = {False: "config.schema.json", True: "speculators.schema.json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", action="store_true", help="the schema of records files instead")
    parser.add_argument(
        "--path", action="store_true", help="print the path of the installed file instead of its content"
    )
    parser.add_argument("--all", action="store_true", help="build it with the records of installed packages too")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file")


def run(args: argparse.Namespace) -> int:
    path = schema_path(NAMES[args.records])
    if args.path:
        print(path)
        return 0
    if args.all and not args.records:
        from specdec.config.schema.build import schema_text
        from specdec.config.schema.checker import all_records

        text = schema_text(all_records())
    else:
        text = path.read_text(encoding="utf-8")
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"specdec schema: error: cannot write '{args.output}': {error.strerror}", file=sys.stderr)
        return 2
    return 0
