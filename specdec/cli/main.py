"""The ``specdec`` command: finds the verb, loads only its module, and turns its outcome into an exit code."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from specdec.cli.edge import run

# verb -> one line for --help; the verb's module is imported only when it runs
VERBS = {
    "validate": "check configuration and records files",
    "plan": "show the finalized configuration, where each value came from, and what it costs",
    "explain": "explain a method, an option, an error code or a field",
    "list": "list the methods and what they are compatible with",
    "schema": "print the JSON Schema for editors and CI",
    "init": "write a first configuration file",
    "export": "print the flags of another engine for a configuration",
    "generate": "generate text with the embedded engine",
    "extract": "write a target's hidden states over prompts, to train drafts on",
    "bench": "measure speed and acceptance",
    "tune": "recommend num_speculative_tokens from measured acceptance and costs",
    "serve": "start another engine's server for a configuration",
    "migrate": "rewrite an older file, or another engine's settings, as a configuration",
}
OK, PROBLEMS, COULD_NOT_RUN = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 for fine, 1 for problems found, 2 for could not run."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return OK if args else COULD_NOT_RUN
    if args[0] in ("-V", "--version", "version"):
        from specdec import __version__

        print(f"specdec {__version__}")
        return OK
    verb, rest = args[0], args[1:]
    if verb not in VERBS:
        return _unknown_verb(verb)
    try:
        module = import_module(f"specdec.cli.{verb}")
    except ModuleNotFoundError as error:
        return _missing_package(verb, error)
    parser = parser_for(verb, module)
    try:
        # intermixed parsing lets flags stand between positionals, but does not know `--`
        options = parser.parse_args(rest) if "--" in rest else parser.parse_intermixed_args(rest)
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    try:
        code = module.run(options)
    except ModuleNotFoundError as error:
        return _missing_package(verb, error)
    except _record_fault() as error:  # asked only when something was raised
        print(f"specdec {verb}: error: the built-in records cannot be used: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    return OK if code is None else int(code)


def parser_for(verb: str, module: Any) -> argparse.ArgumentParser:
    """The parser of a verb, from its module's texts and arguments."""
    parser = argparse.ArgumentParser(
        prog=f"specdec {verb}",
        description=getattr(module, "DESCRIPTION", None) or module.HELP,
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def entry() -> None:
    """The console script: ``main`` behind the command's edge."""
    # imports and records are many objects that stay; looking for garbage among them takes a tenth of a short command
    gc.set_threshold(20_000)
    verb = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in VERBS else ""
    sys.exit(run(main, f"specdec {verb}".strip()))


def usage() -> str:
    """What ``specdec --help`` prints."""
    width = max(map(len, VERBS)) + 2
    lines = [
        "usage: specdec VERB [ARGUMENTS]",
        "",
        "Declarative configuration for speculative decoding, and the runtime it drives.",
        "",
        *(f"  {verb:<{width}}{text}" for verb, text in VERBS.items()),
        "",
        "Verbs that take a configuration also take overrides: specdec plan run.yaml speculative.num_speculative_tokens=4",
        "'specdec VERB --help' says more. Exit codes: 0 fine, 1 problems found, 2 could not run.",
    ]
    return "\n".join(lines)


def _unknown_verb(verb: str) -> int:
    from specdec.config.findings.render import one_line
    from specdec.config.findings.suggest import nearest

    near = nearest(verb, VERBS)
    hint = f"did you mean 'specdec {near}'?" if near else f"there are: {', '.join(VERBS)}"
    if os.path.exists(verb):
        hint = f"to check this file: specdec validate {verb}"
    print(f"specdec: error: unknown verb '{one_line(verb)}'; {hint}", file=sys.stderr)
    return COULD_NOT_RUN


def _record_fault() -> type[Exception]:
    from specdec.config.records.extends import RecordError

    return RecordError


def _missing_package(verb: str, error: ModuleNotFoundError) -> int:
    name = (error.name or "").partition(".")[0]
    if name == "specdec" or not name:
        print(f"specdec: error: '{verb}' is not part of this installation ({error.name})", file=sys.stderr)
    else:
        message = f"'{verb}' needs the package '{name}'; install it with: pip install 'declarative-specdec[run]'"
        print(f"specdec: error: {message}", file=sys.stderr)
    return COULD_NOT_RUN


if __name__ == "__main__":
    entry()
