"""What verbs share: telling files from overrides, printing findings, choosing the exit code."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from specdec.config.findings.diagnostics import COULD_NOT_RUN, Diagnostic
from specdec.config.findings.render import MAX_SHOWN, render_github, render_json, render_text

FORMATS = ("text", "json", "github")
OVERRIDE_HELP = """overrides use Hydra's grammar:
  speculative.num_speculative_tokens=4    set a value
  speculative=eagle3                      choose the method
  ~speculative.model                      remove a key
  'speculative.tree={steps: 2, topk: 2}'  a mapping (quote it in the shell)
  "speculative.model='./my=dir'"          a value with '=' or spaces"""

_OVERRIDE = re.compile(r"^(?:\+\+|\+|~)?[A-Za-z_$][\w.@:/\[\]-]*=|^~[A-Za-z_]|^\+")


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    """``--format``: how findings are printed."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="how findings are printed (default: text)")


def add_config_arguments(parser: argparse.ArgumentParser, files: str = "file") -> None:
    """One positional list of files and overrides, in any order; ``split_arguments`` tells them apart."""
    parser.add_argument(
        "items", nargs="*", metavar="FILE|KEY=VALUE", help=f"{files}, and overrides such as engine.seed=1"
    )


def split_arguments(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """(files, overrides): what exists as a file is a file, else what looks like an override is one."""
    files: list[str] = []
    overrides: list[str] = []
    for item in items:
        (overrides if is_override(item) else files).append(item)
    return files, overrides


def is_override(item: str) -> bool:
    """Whether a command line argument is an override rather than a file."""
    return item != "-" and not os.path.exists(item) and ("=" in item or bool(_OVERRIDE.match(item)))


def print_findings(
    diagnostics: Sequence[Diagnostic], form: str = "text", files: Sequence[str] = (), stream: TextIO | None = None
) -> None:
    """Print findings to standard output, or to ``stream``, in one of ``FORMATS``."""
    out = stream or sys.stdout
    if form == "json":
        text = render_json(diagnostics, files)
    elif form == "github":
        text = render_github(diagnostics)
    else:
        text = render_text(diagnostics, colour=wants_colour(out), limit=MAX_SHOWN)
    if text:
        print(text, file=out)


def wants_colour(stream: object) -> bool:
    """Colour on a terminal, unless NO_COLOR is set."""
    isatty = getattr(stream, "isatty", lambda: False)
    return bool(isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def exit_code(diagnostics: Iterable[Diagnostic], strict: bool = False) -> int:
    """0 without errors, 1 with errors (or, with ``strict``, warnings), 2 when something could not be read at all."""
    found = list(diagnostics)
    if any(d.code in COULD_NOT_RUN for d in found):
        return 2
    return int(any(d.severity == "error" or (strict and d.severity == "warning") for d in found))
