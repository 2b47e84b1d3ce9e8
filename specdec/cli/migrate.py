"""``specdec migrate``: older files, and other engines' settings, as a specdec configuration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from specdec.cli.common import add_format_argument, exit_code, print_findings
from specdec.config.findings.diagnostics import Diagnostic
from specdec.config.read.source import Document, SourceError, load, parse, parse_bytes
from specdec.files import write_atomically

HELP = "rewrite an older file, or another engine's settings, as a configuration"
DESCRIPTION = """Rewrite a specdec file with the names of this version (comments stay), or translate the settings of another
engine. The result goes to standard output, or to -o; what changed, and what was left out and why, goes to standard error."""
EPILOG = """examples:
  specdec migrate old.yaml -o new.yaml
  specdec migrate --from trtllm extra_llm_api_options.yaml
  specdec migrate --from sglang -- --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-num-draft-tokens 4
  specdec migrate --from llamacpp -- --spec-type nextn --draft-block-size 4

exit codes: 0 fine, 1 something could not be translated, 2 the file could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from specdec.config.migrate.foreign import engines

    parser.add_argument(
        "items",
        nargs="*",
        metavar="FILE|-- FLAGS",
        help="a settings file ('-' for standard input), or flags after '--'",
    )
    parser.add_argument(
        "--from",
        dest="engine",
        choices=["specdec", *engines()],
        default="specdec",
        help="whose settings these are (default: specdec)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the configuration to FILE instead of standard output"
    )
    add_format_argument(parser)


def run(args: argparse.Namespace) -> int:
    from specdec.config.migrate import foreign as migrate

    items: list[str] = args.items
    if not items:
        print("specdec migrate: error: no file and no flags given; see 'specdec migrate --help'", file=sys.stderr)
        return 2
    if any(item.startswith("-") and item != "-" for item in items) or len(items) > 1:
        if args.engine == "specdec":
            print("specdec migrate: error: flags need --from, to tell whose they are", file=sys.stderr)
            return 2
        result = migrate.from_flags(args.engine, items)
        text = dump(result.config)
    else:
        try:
            document = read(items[0])
        except SourceError as error:
            print_findings([error.diagnostic], args.format, stream=sys.stderr)
            return 2
        if args.engine == "specdec":
            from specdec.config.migrate.modernise import modernise

            text, diagnostics = modernise(document)
            return finish(args, text, [*diagnostics, *left_to_do(text, document.name)])
        result = migrate.from_settings(args.engine, document.data)
        text = dump(result.config)
    return finish(args, text, result.diagnostics)


def left_to_do(text: str, name: str) -> list[Diagnostic]:
    """What is still wrong in the rewritten file and needs a person; located in the new text."""
    from specdec.config.schema.checker import check_document, checker_for

    if not text:
        return []
    document = parse(text, name)
    checker, problems = checker_for(document.data)
    return [*problems, *check_document(document, checker)]


def finish(args: argparse.Namespace, text: str, diagnostics: list[Diagnostic]) -> int:
    """Print findings, and the configuration unless there were errors."""
    print_findings(diagnostics, args.format, stream=sys.stderr)
    code = exit_code(diagnostics)
    if code:
        return code
    if args.output:
        try:
            write_atomically(Path(args.output), text)
        except OSError as error:
            print(f"specdec migrate: error: cannot write '{args.output}': {error.strerror}", file=sys.stderr)
            return 2
    else:
        sys.stdout.write(text)
    return 0


def read(name: str) -> Document:
    return parse_bytes(sys.stdin.buffer.read(), "<stdin>") if name == "-" else load(name)


def dump(config: dict[str, object]) -> str:
    import yaml

    from specdec.config.show.template import MODELINE

    return MODELINE + yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
