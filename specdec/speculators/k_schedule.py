"""k by the number of requests that decode together."""

from __future__ import annotations

from collections.abc import Sequence


class KSchedule:
    """``entries`` are [first, last, k] in order; batch sizes in a gap or beyond the end keep the k before them."""

    def __init__(self, k: int, entries: Sequence[Sequence[int]] | None = None) -> None:
        self.k, self.entries = k, [tuple(entry) for entry in entries or ()]

    def __call__(self, batch_size: int) -> int:
        k = self.k
        for first, _, wanted in self.entries:
            if batch_size < first:
                break
            k = wanted
        return min(k, self.k)
