"""Why a file cannot be read, in words a person can act on."""

from __future__ import annotations

from pathlib import Path

import yaml

from specdec.config.findings.diagnostics import Diagnostic, Source
from specdec.config.findings.suggest import nearest


class SourceError(Exception):
    """The file could not be read as one document; nothing in it was checked."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


def fatal(code: str, name: str, message: str) -> SourceError:
    """A fault that keeps a file from being checked at all: one line, exit code 2."""
    return SourceError(Diagnostic(code, "error", "", message, None, Source("file", name)))


def too_large(name: str, size: int, limit: int) -> SourceError:
    """The fault of a file above ``limit`` bytes."""
    return fatal(
        "file-too-large",
        name,
        f"has more than {limit / 1e6:g} MB ({size / 1e6:.1f} MB); a configuration is a small file",
    )


def near_file(file: Path) -> str:
    """``; did you mean ...?`` for a file that does not exist, or nothing."""
    try:
        names = [p.name for p in file.parent.iterdir() if p.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return f"; the folder '{file.parent}' does not exist either"
    near = nearest(file.name, names)
    return f"; did you mean '{file.parent / near}'?" if near else ""


_SYNTAX_HELP = (
    (
        "mapping values are not allowed",
        "a second ':' on one line",
        "put a value that contains ': ' in quotes, or indent the line",
    ),
    ("could not find expected ':'", "a key without ':'", "write 'key: value'"),
    ("did not find expected key", "the indentation does not fit the lines above", "indent keys of one block equally"),
    ("did not find expected '-'", "the indentation of the list does not fit", "start each item in the same column"),
    (
        "did not find expected ',' or",
        "a bracket is not closed, or a ',' is missing",
        "close the bracket, or separate the items with ','",
    ),
    ("unexpected end of stream", "a quote is not closed", "close the quote"),
    (
        "undefined alias",
        "an alias without an anchor of that name before it",
        "define it with '&' before it is used with '*'",
    ),
    ("cannot start any token", "this character cannot start a value", "put the value in quotes"),
    ("did not find expected node content", "a value is missing", "write the value, or close the bracket"),
    ("unknown escape character", "an unknown escape in double quotes", "use single quotes for a text with backslashes"),
    (
        "block sequence entries are not allowed",
        "a list item cannot start here",
        "put '-' on its own line below the key",
    ),
    ("did not find expected <document start>", "more than one value at the top", "check the indentation of this line"),
)


def syntax_error(error: yaml.MarkedYAMLError, name: str, lines: list[str], max_depth: int) -> SourceError:
    """A parser's complaint in plain words, at the last line that has text when it points past the end."""
    problem = str(error.problem or error.context or "not valid YAML")
    if "nesting depth" in problem:
        return fatal("too-deep", name, f"is nested deeper than {max_depth} levels")
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if "another document" in problem or "single document" in str(error.context):
        return fatal(
            "multiple-documents",
            name,
            f"has more than one document (the next starts on line {line}); keep one per file",
        )
    while line > 1 and (line > len(lines) or not lines[line - 1].strip()):  # the end of the file: show the last line
        line -= 1
        column = len(lines[line - 1]) + 1 if line <= len(lines) else 1
    text = lines[line - 1] if line <= len(lines) else ""
    tab = "\t" in text[: len(text) - len(text.lstrip())] or text[column - 1 : column] == "\t"
    if (tab and "cannot start any token" in problem) or "found a tab" in problem or "'\\t'" in problem:
        source = Source("file", name, line, text.index("\t") + 1 if "\t" in text else column, text)
        return SourceError(
            Diagnostic(
                "yaml-tab", "error", "", "a tab is used where YAML wants spaces", "replace the tab by spaces", source
            )
        )
    source = Source("file", name, line, column, text)
    for found, message, fix in _SYNTAX_HELP:
        if found in problem:
            return SourceError(Diagnostic("yaml-syntax", "error", "", f"not valid YAML: {message}", fix, source))
    return SourceError(
        Diagnostic(
            "yaml-syntax", "error", "", f"not valid YAML: {problem}", "check the indentation and the quotes", source
        )
    )
