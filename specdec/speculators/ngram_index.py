"""An incremental index of the n-grams of one growing token sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Odds that a copied token is right, per token of the match before it, and what multiplies them when the last two
# occurrences of its n-gram were followed by the same token (twice: three, ...) or not; from texts of a small chat model.
_ODDS_PER_TOKEN = 0.55
_CONFIRMED_ONCE, _CONFIRMED, _CHANGED, _CONTRADICTED = 1.3, 6.0, 0.16, 0.3
_LONGEST = 40  # tokens of a match beyond which it tells no more


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
        # per n, for n-grams that came back: how often in a row the same token followed as before; -1 = another one did
        self._confirmed: list[dict[tuple[int, ...], int]] = [{} for _ in self._sizes]

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the sequence."""
        history, leftmost = self.tokens, self._leftmost
        for token in tokens:
            end = len(history)
            for n, table, confirmed in zip(self._sizes, self._next, self._confirmed, strict=True):
                if n > end:
                    break
                key = tuple(history[end - n : end])
                before = table.get(key)
                if before is not None:
                    confirmed[key] = max(confirmed.get(key, 0), 0) + 1 if history[before] == token else -1
                if before is None or not leftmost:
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

    def confidences(self, start: int, drafts: Sequence[int]) -> list[float]:
        """Chance that each of ``drafts``, copied from ``start``, comes next, given that those before it did.

        It grows with the length of the match, drafts before it included, and with the occurrences that agree.
        """
        history, (low, high) = self.tokens, (self._sizes[0], self._sizes[-1])
        length, end = 0, len(history)
        while length < _LONGEST and length < start and history[start - 1 - length] == history[end - 1 - length]:
            length += 1
        path = [*history[-high:], *drafts]
        out = []
        for at, token in enumerate(drafts, start=len(path) - len(drafts)):
            odds = _ODDS_PER_TOKEN * length
            n = min(length, high) - low
            key = tuple(path[at - n - low : at])
            known = self._next[n].get(key)
            if known is not None:
                if history[known] != token:
                    odds *= _CONTRADICTED
                elif times := self._confirmed[n].get(key):
                    odds *= _CHANGED if times < 0 else _CONFIRMED_ONCE if times == 1 else _CONFIRMED
            out.append(odds / (1.0 + odds))
            length += 1
        return out


def continuation(tokens: Sequence[int], start: int, count: int, *, wrap: bool) -> list[int]:
    """Up to ``count`` tokens from ``start``; with ``wrap`` a copy that reaches the end goes on over its own output.

    Wrapping is what LZ77 does with an overlapping match: a text of period p is continued for as long as asked.
    """
    found = list(tokens[start : start + count])
    if wrap and len(found) < count:
        period = len(tokens) - start
        found.extend(found[i % period] for i in range(len(found), count))
    return found
