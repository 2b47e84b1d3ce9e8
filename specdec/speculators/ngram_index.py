"""An incremental index of the n-grams of one growing token sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class NgramIndex:
    """Answers in O(window) where the last tokens occurred before; append is O(window), whatever the length.

    ``leftmost`` keeps the first occurrence of each n-gram, else the latest one is kept. An occurrence counts once at
    least one token follows it, so the suffix never matches itself; it may overlap the suffix.
    """

    def __init__(self, min_n: int, max_n: int, *, leftmost: bool) -> None:
        assert 1 <= min_n <= max_n
        self.tokens: list[int] = []
        self._sizes = range(min_n, max_n + 1)
        self._leftmost = leftmost
        # per n: n-gram -> index of the token that follows its chosen occurrence
        self._next: list[dict[tuple[int, ...], int]] = [{} for _ in self._sizes]

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the sequence."""
        history, leftmost = self.tokens, self._leftmost
        for token in tokens:
            end = len(history)
            for n, table in zip(self._sizes, self._next, strict=True):
                if n > end:
                    break
                key = tuple(history[end - n : end])
                if leftmost:
                    table.setdefault(key, end)
                else:
                    table[key] = end
            history.append(token)

    def match(self) -> int | None:
        """Where the continuation of the longest matching suffix begins, or None."""
        history = self.tokens
        for n in reversed(self._sizes):
            if n < len(history):
                start = self._next[n - self._sizes.start].get(tuple(history[-n:]))
                if start is not None:
                    return start
        return None


def continuation(tokens: Sequence[int], start: int, count: int, *, wrap: bool) -> list[int]:
    """Up to ``count`` tokens from ``start``; with ``wrap`` a copy that reaches the end goes on over its own output.

    Wrapping is what LZ77 does with an overlapping match: a text of period p is continued for as long as asked.
    """
    found = list(tokens[start : start + count])
    if wrap and len(found) < count:
        period = len(tokens) - start
        found.extend(found[i % period] for i in range(len(found), count))
    return found
