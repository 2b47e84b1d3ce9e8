"""Text files of users: read as UTF-8 with words for what is not, written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MOST = 1 << 28  # bytes of a text file


class TextFileError(ValueError):
    """A text cannot be read; the message names it and says why."""


def read_text(path: str | Path, most: int = MOST) -> str:
    """The text of a UTF-8 file of at most ``most`` bytes, without a byte order mark; raises ``TextFileError``."""
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # the latter: a null character in the name
        raise TextFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > most:
        raise TextFileError(f"{path} has more than {most >> 20} MB")
    return decode(data, str(path))


def decode(data: bytes, name: str) -> str:
    """UTF-8 bytes as text; raises ``TextFileError`` that says where they are none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TextFileError(f"{name} is not UTF-8: byte 0x{data[error.start]:02x} in line {line}") from None


def check_text(text: str, name: str) -> str:
    """``text``, unless the system gave bytes that are no UTF-8; raises ``TextFileError``."""
    for position, character in enumerate(text):
        if 0xDC80 <= ord(character) <= 0xDCFF:
            byte = ord(character) - 0xDC00
            raise TextFileError(f"{name} is not UTF-8: byte 0x{byte:02x} after {position} characters")
    return text


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file so that at any time there is the old one or the new one, and nothing else is left behind."""
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, 0o666 & ~umask)  # as an ordinary new file
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
