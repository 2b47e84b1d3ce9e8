"""``specdec validate``: check files without a checkpoint, a GPU or torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.cli.common import (
    OVERRIDE_HELP,
    add_config_arguments,
    add_format_argument,
    exit_code,
    print_findings,
    split_arguments,
)
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.read.source import Document, SourceError, load, parse_bytes

HELP = "check configuration and records files"
DESCRIPTION = """Check configuration files, or files with records (speculators.yaml): keys, types, ranges, methods, names.
Nothing is run and no checkpoint is read; 'specdec plan' also checks against the checkpoints."""
EPILOG = f"""{OVERRIDE_HELP}

examples:
  specdec validate run.yaml
  specdec validate configs/*.yaml --format github
  specdec validate run.yaml speculative.num_speculative_tokens=4
  cat run.yaml | specdec validate -

exit codes: 0 fine, 1 problems found, 2 a file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_arguments(parser, "files to check, '-' for standard input")
    add_format_argument(parser)
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing when all is well")


def run(args: argparse.Namespace) -> int:
    files, overrides = split_arguments(args.items)
    if not files:
        print("specdec validate: error: no file given; for example: specdec validate run.yaml", file=sys.stderr)
        return 2
    found: list[Diagnostic] = []
    for file in files:
        found += check_file(file, overrides)
    print_findings(found, args.format, files)
    code = exit_code(found, args.strict)
    if code == 0 and args.format == "text" and not args.quiet:
        names = files[0] if len(files) == 1 else f"{len(files)} files"
        print(f"{names}: valid")
    return code


def check_file(file: str, overrides: list[str]) -> list[Diagnostic]:
    """Every finding of one file; a file that cannot be read is one finding."""
    try:
        document = parse_bytes(sys.stdin.buffer.read(), "<stdin>") if file == "-" else load(file)
    except SourceError as error:
        return [error.diagnostic]
    from specdec.config.schema.checker import is_records_file

    if is_records_file(document.data) and not overrides:
        from specdec.config.records.parse import check_records_file

        return check_records_file(file)
    return check_config(document, overrides, Path(file).parent if file != "-" else Path())


def check_config(document: Document, overrides: list[str], folder: Path) -> list[Diagnostic]:
    """The findings of a configuration, after its overrides."""
    from specdec.config.schema.checker import check_document, checker_for

    checker, problems = checker_for(document.data, folder)
    if not overrides:
        return [*problems, *check_document(document, checker)]
    from specdec.config.read.overrides import apply_overrides, locator

    data, sources, wrong = apply_overrides(document.data, overrides, checker.known.methods)
    if wrong:
        return [*document.problems, *wrong]
    checker, problems = checker_for(data, folder)
    skip = {d.path for d in document.problems}
    return [*problems, *document.problems, *checker.check(data, locator(sources, document.source), skip=skip)]
