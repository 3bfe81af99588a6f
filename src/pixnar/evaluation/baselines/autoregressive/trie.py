"""Trie of token sequences in flat arrays: the constraint under which only docids can be generated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container

Ints = NDArray[np.int64]

ROOT = 0
NOWHERE = -1
"""The node behind a token that is not allowed."""

_KIND, _VERSION = "trie", 1


class Trie:
    """Nodes by number; the children of node i are edges offsets[i] … offsets[i + 1] - 1, by token ascending.

    Every sequence is followed by the token `end`, whose child is the leaf that knows the numbers of its sequences.

    >>> trie = Trie.of([[5, 3], [5], [5, 3]], end=1)
    >>> node = trie.child(trie.root(), 5)
    >>> trie.allowed(node).tolist(), trie.items(trie.find([5, 3, 1])).tolist()
    ([1, 3], [0, 2])
    """

    def __init__(self, offsets: Ints, tokens: Ints, item_offsets: Ints, item_numbers: Ints, *, end: int) -> None:
        """Over arrays that are not copied; edge e leads to node e + 1."""
        self.offsets, self.tokens, self.end = offsets, tokens, end
        self.item_offsets, self.item_numbers = item_offsets, item_numbers

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], *, end: int) -> Trie:
        """From sequences without their end; those that are equal share a leaf."""
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        tokens = np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum()))
        _check(tokens, lengths, end)
        starts, base = _starts(lengths), 1 + max(end, int(tokens.max(initial=0)))
        nodes = np.zeros(len(lengths), np.int64)  # breadth first: by depth, then by parent, then by token
        parents, followed, count = [], [], 1
        for depth in range(int(lengths.max(initial=-1)) + 2):
            alive = np.flatnonzero(lengths >= depth)
            ending = lengths[alive] == depth
            nexts = np.full(len(alive), end)
            nexts[~ending] = tokens[starts[alive[~ending]] + depth]
            edges, place = np.unique(nodes[alive] * base + nexts, return_inverse=True)
            nodes[alive] = count + place
            count += len(edges)
            parents.append(edges // base)
            followed.append(edges % base)
        children = np.bincount(np.concatenate(parents), minlength=count)
        held = np.bincount(nodes, minlength=count) if len(nodes) else np.zeros(count, np.int64)
        numbers = np.argsort(nodes, kind="stable")
        return cls(_starts(children), np.concatenate(followed), _starts(held), numbers, end=end)

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.offsets) - 1

    def root(self) -> int:
        """The node of the empty sequence."""
        return ROOT

    def allowed(self, node: int) -> Ints:
        """The tokens that may follow, ascending."""
        return self.tokens[:0] if node == NOWHERE else self.tokens[self.offsets[node] : self.offsets[node + 1]]

    def child(self, node: int, token: int) -> int:
        """The node after one more token, or `NOWHERE`."""
        allowed = self.allowed(node)
        place = int(allowed.searchsorted(token))
        if place == len(allowed) or allowed[place] != token:
            return NOWHERE
        return int(self.offsets[node]) + place + 1

    def find(self, tokens: Sequence[int]) -> int:
        """The node of a prefix, or `NOWHERE`."""
        node = ROOT
        for token in tokens:
            node = self.child(node, token)
        return node

    def items(self, node: int) -> Ints:
        """The numbers of the sequences that end at a node, ascending; there are none but at leaves."""
        if node == NOWHERE:
            return self.item_numbers[:0]
        return self.item_numbers[self.item_offsets[node] : self.item_offsets[node + 1]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file."""
        arrays = {"offsets": self.offsets, "tokens": self.tokens}
        arrays |= {"item_offsets": self.item_offsets, "item_numbers": self.item_numbers}
        write_container(path, _KIND, _VERSION, {"end": self.end, "nodes": len(self)}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trie:
        """Map what `save` wrote."""
        found = read_container(path, _KIND, _VERSION)
        try:
            names = ("offsets", "tokens", "item_offsets", "item_numbers")
            offsets, tokens, item_offsets, item_numbers = (found.arrays[name] for name in names)
            end, nodes = int(found.meta["end"]), found.meta["nodes"]
        except KeyError as error:
            raise FileFormatError(f"{path} does not say {error}: copy or build the baseline again") from error
        sound = len(offsets) == len(item_offsets) == nodes + 1 and len(tokens) == offsets[-1] == nodes - 1
        if not sound or len(item_numbers) != item_offsets[-1]:
            raise FileFormatError(f"{path} has arrays that do not fit together: copy or build the baseline again")
        return cls(offsets, tokens, item_offsets, item_numbers, end=end)


def _starts(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _check(tokens: Ints, lengths: Ints, end: int) -> None:
    wrong = np.flatnonzero((tokens == end) | (tokens < 0))
    if len(wrong):
        number, token = int(np.searchsorted(np.cumsum(lengths), wrong[0], "right")), int(tokens[wrong[0]])
        raise PixnarError(f"sequence {number} has the token {token}: give tokens from 0, without {end}, which ends all")
