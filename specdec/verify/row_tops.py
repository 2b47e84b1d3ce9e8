"""Maximum and argmax of many rows at once, much faster on a CPU than torch.argmax, above all for 16-bit rows."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import torch
from specdec_kernels.cpu.rows import native_rows

BLOCK = 256


@dataclass(frozen=True)
class _Format:
    """How a float dtype lies in memory; positive floats are ordered like their bits."""

    signed: torch.dtype  # the integers of its size
    unsigned: type[np.unsignedinteger]
    infinity: int  # its bits
    code: str  # of a float in the struct module, and of the integer that ``shift`` makes of the bits
    integer: str
    shift: int = 0


_FORMATS = {
    torch.bfloat16: _Format(torch.int16, np.uint16, 0x7F80, "f", "i", 16),  # the upper half of a float32
    torch.float16: _Format(torch.int16, np.uint16, 0x7C00, "e", "h"),
    torch.float32: _Format(torch.int32, np.uint32, 0x7F800000, "f", "i"),
}


def row_tops(rows: torch.Tensor) -> tuple[list[float], list[int]]:
    """Maxima and lowest arg-maxima of rows [N, V]; a row with NaN has maximum NaN and an arbitrary index."""
    if not rows.shape[0]:  # len() of a tensor runs Python code
        return [], []
    native = native_rows(rows)
    if native is not None:
        return native.tops(rows)
    how = _FORMATS.get(rows.dtype) if rows.device.type == "cpu" else None
    found = _by_bits(rows, how) if how is not None else None
    return found or _by_blocks(rows)


def _by_bits(rows: torch.Tensor, how: _Format) -> tuple[list[float], list[int]] | None:
    """By the bits as integers, which NumPy reduces at the speed of memory; None where they do not decide."""
    tops, best = [], []
    negative_infinity = how.infinity + (1 << 8 * rows.itemsize - 1)
    for bits in rows.view(how.signed).numpy():
        token = int(bits.argmax())
        top = bits.item(token)
        if top < 0:  # all negative: the nearer to zero, the smaller the integer
            token = int(bits.argmin())
            top = bits.item(token)
        # zeros of both signs are equal but their bits are not; infinity needs care, and NaNs lie beyond it
        if top == 0 or top >= how.infinity or bits.view(how.unsigned).max() > negative_infinity:
            return None
        tops.append(struct.unpack(how.code, struct.pack(how.integer, top << how.shift))[0])
        best.append(token)
    return tops, best


def _by_blocks(rows: torch.Tensor) -> tuple[list[float], list[int]]:
    vocab_size = rows.shape[1]
    if vocab_size <= 2 * BLOCK:
        top = rows.amax(-1, keepdim=True)
        return top[:, 0].tolist(), (rows == top).to(torch.uint8).argmax(-1).tolist()
    whole = vocab_size // BLOCK * BLOCK
    parts = [rows[:, :whole].view(len(rows), -1, BLOCK).amax(-1)] if whole else []
    if whole < vocab_size:
        parts.append(rows[:, whole:].amax(-1, keepdim=True))
    blocks = parts[0] if len(parts) == 1 else torch.cat(parts, 1)  # [N, ceil(V / 256)]
    top = blocks.amax(-1, keepdim=True)
    first = (blocks == top).to(torch.uint8).argmax(-1, keepdim=True)
    # the last block may reach past the end: the repeated last token comes after every real one
    inside = (first * BLOCK + torch.arange(BLOCK, device=rows.device)).clamp_(max=vocab_size - 1)
    offset = (rows.gather(1, inside) == top).to(torch.uint8).argmax(-1, keepdim=True)
    return top[:, 0].tolist(), inside.gather(1, offset)[:, 0].tolist()
