"""The nearest known name for a word that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was most likely meant, or None when nothing is near.

    Case, dashes and underscores do not count; then few edits win, then a name that shares most of its words.
    """
    plain = normalise(word)
    if not plain:
        return None
    best: tuple[float, str] | None = None
    for name in names:
        score = _score(plain, normalise(name), word, name)
        if score is not None and (best is None or score < best[0]):
            best = (score, name)
    return best[1] if best else None


def normalise(word: str) -> str:
    """Lower case letters and digits only: ``EAGLE-3`` and ``eagle_3`` are ``eagle3``."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _score(plain: str, other: str, word: str, name: str) -> float | None:
    """Smaller is nearer; None is too far."""
    if not other:
        return None
    if plain == other:
        return 0.0
    allowed = max(1, min(3, (max(len(plain), len(other)) + 1) // 3))
    edits = distance(plain, other, allowed)
    if edits is not None:
        return edits + (0.0 if plain[0] == other[0] else 0.3) + abs(len(plain) - len(other)) * 0.01
    if len(plain) >= 3 and plain[:2] == other[:2] and _is_shortened(plain, other):
        return 9.0 + (len(other) - len(plain)) * 0.01  # bf16 for bfloat16
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, plain, other, autojunk=False)
    if matcher.real_quick_ratio() < 0.6 or matcher.quick_ratio() < 0.6:  # cheap upper bounds
        return None
    ratio = matcher.ratio()
    ours, theirs = set(re.split(r"[_\W]+", word.lower())), set(re.split(r"[_\W]+", name.lower()))
    shared = len(ours & theirs) / max(len(ours | theirs), 1)
    likeness = max(ratio, 0.0) + 0.3 * shared
    return 10.0 - likeness if ratio >= 0.75 or (shared >= 0.6 and ratio >= 0.6) else None


def _is_shortened(short: str, long: str) -> bool:
    letters = iter(long)
    return all(letter in letters for letter in short)


def distance(a: str, b: str, limit: int) -> int | None:
    """Edits between two words (insert, delete, replace, swap neighbours); None above ``limit``."""
    if abs(len(a) - len(b)) > limit:
        return None
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        earlier, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return None
    return row[-1] if row[-1] <= limit else None
