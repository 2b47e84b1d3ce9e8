"""``python -m specdec``."""

from specdec.cli.main import entry

entry()
