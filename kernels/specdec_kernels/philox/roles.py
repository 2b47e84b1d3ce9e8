"""What a draw decides."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """Different roles of one (seed, position, slot) are independent."""

    DRAFT = 1  # proposing a draft token from q; slot 1..k
    ACCEPT = 2  # accepting draft token number `slot` (1..k)
    RESIDUAL = 3  # the correction token after a rejection at `slot`
    TARGET = 4  # the target's own draw at a position: plain sampling, the bonus token, coupled rows; slot 0
