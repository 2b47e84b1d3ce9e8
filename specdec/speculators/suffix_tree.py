"""Counted substrings of token sequences: the statistics that suffix decoding drafts from."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter


class Node:
    """A substring, identified by its path from the root.

    A substring that occurred once is a leaf: ``sequence`` and ``position`` say where it goes on, and its continuations
    get nodes only when it occurs again. That keeps a few nodes per token instead of ``max_depth``.
    """

    __slots__ = ("best", "children", "count", "position", "sequence")

    def __init__(self, sequence: int = -1, position: int = 0) -> None:
        self.count = 1  # occurrences of the substring
        self.children: dict[int, Node] = {}
        self.best = -1  # the child with the highest count, among equals the one that reached it first; -1 = none
        self.sequence, self.position = sequence, position  # of a leaf: what follows it; sequence -1 = not a leaf

    def add(self, token: int, child: Node) -> None:
        self.children[token] = child
        self.prefer(token)

    def prefer(self, token: int) -> None:
        """The child's count grew."""
        if self.best < 0 or self.children[token].count > self.children[self.best].count:
            self.best = token


@dataclass(frozen=True)
class Candidate:
    """A draft and how sure the statistics are of it."""

    tokens: list[int]
    probabilities: list[float]  # of each token given those before it
    match_len: int

    @property
    def score(self) -> float:
        """Expected number of accepted tokens: the sum of the path probabilities."""
        total, path = 0.0, 1.0
        for probability in self.probabilities:
            path *= probability
            total += path
        return total


class SuffixTree:
    """Counts of all substrings of at most ``max_depth`` tokens of some sequences, each of which may still grow.

    Appending a token costs O(max_depth). A sequence can be taken out again.
    """

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.root = Node()
        self._tokens: dict[int, list[int]] = {}
        # per growing sequence the nodes where its suffixes end now, shortest first; suffixes inside a leaf need none
        self._ends: dict[int, list[tuple[int, Node]]] = {}

    def __len__(self) -> int:
        """Number of sequences held."""
        return len(self._tokens)

    def extend(self, sequence: int, tokens: Sequence[int]) -> None:
        """Append tokens to the sequence of this id, which is created on first use."""
        text = self._tokens.setdefault(sequence, [])
        ends = self._ends.setdefault(sequence, [])
        for token in tokens:
            grown: list[tuple[int, Node]] = []
            # shortest first: a visit from its parent turns a leaf that ends here into a node, which then grows too
            for depth, node in ((0, self.root), *ends):
                if node.sequence < 0 and depth < self.max_depth:
                    grown.append((depth + 1, self._descend(node, token, depth + 1, sequence, len(text) + 1)))
            ends = grown
            text.append(token)
        self._ends[sequence] = ends

    def _descend(self, node: Node, token: int, depth: int, sequence: int, position: int) -> Node:
        child = node.children.get(token)
        if child is None:
            child = Node(sequence, position)
            node.add(token, child)
            return child
        child.count += 1
        node.prefer(token)
        if child.sequence >= 0:
            self._expand(child, depth, sequence)
        return child

    def _expand(self, leaf: Node, depth: int, growing: int) -> None:
        """Turn a leaf at this depth into a node whose one child is the next token of its only occurrence so far."""
        sequence, position = leaf.sequence, leaf.position
        text = self._tokens[sequence]
        leaf.sequence = -1
        if position < len(text) and depth < self.max_depth:
            child = Node(sequence, position + 1)
            leaf.add(text[position], child)
            # an occurrence that now ends at its own leaf must be found when its sequence grows
            if position + 1 == len(text) and sequence != growing and sequence in self._ends:
                insort(self._ends[sequence], (depth + 1, child), key=itemgetter(0))

    def close(self, sequence: int) -> None:
        """The sequence will not grow any more; its counts stay."""
        self._ends.pop(sequence, None)

    def remove(self, sequence: int) -> None:
        """Take a sequence's counts out."""
        self.close(sequence)
        tokens = self._tokens[sequence]
        for start in range(len(tokens)):
            node = self.root
            for token in tokens[start : start + self.max_depth]:
                child = node.children[token]
                child.count -= 1
                if child.count == 0:
                    del node.children[token]
                if node.best == token:
                    node.best = max(node.children, key=lambda t, n=node: n.children[t].count, default=-1)  # type: ignore
                if child.count == 0:
                    break
                node = child
        del self._tokens[sequence]

    def count(self, tokens: Sequence[int]) -> int:
        """Occurrences of a substring of 1 to ``max_depth`` tokens."""
        place = self._find(tokens)
        return 0 if place is None else place[0].count

    def _find(self, tokens: Sequence[int]) -> tuple[Node, int] | None:
        """The node of a substring, or the leaf it goes on from and the position after it; None if it never occurred."""
        node = self.root
        for i, token in enumerate(tokens):
            if node.sequence >= 0:
                text, rest = self._tokens[node.sequence], tokens[i:]
                end = node.position + len(rest)
                return (node, end) if text[node.position : end] == list(rest) else None
            child = node.children.get(token)
            if child is None:
                return None
            node = child
        return node, node.position

    def speculate(
        self,
        context: Sequence[int],
        max_tokens: int,
        *,
        spec_factor: float,
        min_probability: float,
        sequence: int | None = None,
    ) -> Candidate:
        """The best continuation over all suffixes of ``context`` that occurred.

        A suffix of m tokens may draft m * spec_factor tokens, up to ``max_tokens``: the likeliest child each time,
        while the path's probability stays at ``min_probability`` or above. The highest score wins, the longest match
        on ties. ``sequence`` says that ``context`` is the end of this growing sequence, which spares finding it.
        Source: arXiv 2411.04975 and ArcticInference.
        """
        longest = min(len(context), self.max_depth) - 1
        best, best_score = Candidate([], [], 0), 0.0
        for match_len, node, position in reversed(list(self._suffixes(context, longest, sequence))):
            budget = min(max_tokens, int(match_len * spec_factor + 1e-6), self.max_depth - match_len)
            if min(max_tokens, match_len * spec_factor) <= best_score:
                break  # a shorter match cannot score more than the tokens it may draft
            tokens: list[int] = []
            probabilities: list[float] = []
            path, score = 1.0, 0.0
            for token, probability in self._continuation(node, position):
                path *= probability
                if len(tokens) >= budget or path < min_probability:
                    break
                tokens.append(token)
                probabilities.append(probability)
                score += path
            if score > best_score:
                best, best_score = Candidate(tokens, probabilities, match_len), score
        return best

    def _suffixes(self, context: Sequence[int], longest: int, sequence: int | None) -> Iterator[tuple[int, Node, int]]:
        """(length, node, position in it) of the suffixes that something may follow, shortest first."""
        if sequence is not None:
            # a suffix without a node here occurred only where the sequence ends now
            yield from ((n, node, node.position) for n, node in self._ends.get(sequence, ()) if n <= longest)
            return
        for match_len in range(1, longest + 1):
            place = self._find(context[len(context) - match_len :])
            if place is None or (place[0].count == 1 and next(self._continuation(*place), None) is None):
                return  # nothing follows this suffix, so nothing follows a longer one
            yield match_len, *place

    def _continuation(self, node: Node, position: int) -> Iterator[tuple[int, float]]:
        """The likeliest next tokens and their shares."""
        while node.sequence < 0:
            if node.best < 0:
                return
            child = node.children[node.best]
            yield node.best, child.count / node.count
            node, position = child, child.position
        for token in self._tokens[node.sequence][position:]:
            yield token, 1.0
