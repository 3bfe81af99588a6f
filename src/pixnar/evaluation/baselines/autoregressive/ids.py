"""Document ids that a decoder can generate: word pieces of a text, decimal digits, or paths through k-means clusters.

All of them are sequences of tokens from 2: token 0 is what a decoder begins with and pads with, token 1 ends an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import PixnarError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Tokens = tuple[int, ...]

PAD, END = 0, 1
FIRST = 2
"""The first token that is neither of these."""

_DIGITS = 10
_ROUNDS = 100  # of k-means, at most
_SAMPLE = 256  # vectors for each centroid to be learned from, at most


class PieceTokens:
    """A bijection between the word pieces that occur in some texts and tokens: 0, 1, markers, pieces ascending.

    The pieces begin at `first`. A decoder that generates under a constraint needs no rows for pieces that never occur.

    >>> pieces = PieceTokens([700, 30, 700, 512], markers=1)
    >>> pieces.marker(0), pieces.encode([512, 30]), pieces.decode([4, 3]), pieces.size
    (2, (4, 3), [512, 30], 6)
    """

    def __init__(self, pieces: ArrayLike, *, markers: int = 0) -> None:
        self.pieces: Ints = np.unique(np.asarray(pieces, np.int64))
        self.markers, self.first = markers, FIRST + markers

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.first + len(self.pieces)

    def marker(self, number: int) -> int:
        """The token of a marker, which no text contains."""
        if not 0 <= number < self.markers:
            raise PixnarError(f"marker {number} is not possible: there are {self.markers}, counted from 0")
        return FIRST + number

    def encode(self, pieces: Sequence[int]) -> Tokens:
        """The tokens of word pieces."""
        wanted = np.asarray(pieces, np.int64)
        places = self.pieces.searchsorted(wanted)
        missing = np.append(self.pieces, -1)[places] != wanted
        if missing.any():
            raise PixnarError(
                f"word piece {wanted[missing][0]} has no token: it occurs in none of the texts; leave it out"
            )
        return tuple((places + self.first).tolist())

    def decode(self, tokens: Iterable[int]) -> list[int]:
        """The word pieces of tokens; the end and markers are left out."""
        return [int(self.pieces[token - self.first]) for token in tokens if token >= self.first]


def text_ids(pieces: Sequence[Sequence[int]], *, markers: int = 0) -> tuple[PieceTokens, list[Tokens]]:
    """Texts as ids: the tokens of the word pieces that they have, and each text in these tokens."""
    tokens = PieceTokens([piece for text in pieces for piece in text], markers=markers)
    return tokens, [tokens.encode(text) for text in pieces]


def naive_ids(count: int, seed: int = 0) -> list[Tokens]:
    """A random number for each document, as decimal digits; token 2 + d is the digit d.

    >>> sorted("".join(str(token - 2) for token in tokens) for tokens in naive_ids(11))[:3]
    ['0', '1', '10']
    """
    numbers = np.random.default_rng(seed).permutation(count).tolist()
    return [tuple(FIRST + int(digit) for digit in str(number)) for number in numbers]


NAIVE_TOKENS = FIRST + _DIGITS
"""How many tokens naive ids have."""


class PlaceTokens:
    """A bijection between digits with their places in a path and tokens: digit v at place i is i · base + v + 2.

    >>> tokens = PlaceTokens(base=30, places=3)
    >>> tokens.encode([4, 0, 29]), tokens.decode([6, 32, 91, 1]), tokens.size
    ((6, 32, 91), [4, 0, 29], 92)
    """

    def __init__(self, *, base: int, places: int) -> None:
        self.base, self.places = base, places

    @property
    def size(self) -> int:
        """The number of tokens."""
        return FIRST + self.base * self.places

    def encode(self, path: Sequence[int]) -> Tokens:
        """The tokens of a path."""
        if len(path) > self.places or not all(0 <= digit < self.base for digit in path):
            raise PixnarError(
                f"the path {list(path)} is not possible: give at most {self.places} digits from 0 to {self.base - 1}"
            )
        return tuple(place * self.base + digit + FIRST for place, digit in enumerate(path))

    def decode(self, tokens: Iterable[int]) -> list[int]:
        """The path of tokens; the end is left out."""
        return [(token - FIRST) % self.base for token in tokens if token >= FIRST]

    def place(self, token: int) -> int:
        """The only place at which a token can be."""
        return (token - FIRST) // self.base

    def allowed(self, place: int) -> Ints:
        """The tokens that can be at a place: its digits, and the end if it is not the first place."""
        digits = FIRST + place * self.base + np.arange(self.base if place < self.places else 0)
        return np.concatenate([[END] if place else [], digits]).astype(np.int64)


def cluster_paths(vectors: Floats, *, k: int = 30, leaf: int = 30, seed: int = 0) -> list[Tokens]:
    """A path for each vector by hierarchical k-means: digits of clusters below k, and a number below `leaf` at the end.

    Clusters of more than `leaf` vectors are split again; one of a single vector gets no further digit. Vectors that
    k-means cannot tell apart are split evenly. No path begins another one.
    """
    for name, value, least in (("k", k, 2), ("leaf", leaf, 1)):
        if value < least:
            raise PixnarError(f"{name} {value} is not possible: give {least} or more")
    paths: list[Tokens] = [()] * len(vectors)
    rng = np.random.default_rng(seed)
    waiting: list[tuple[Tokens, Ints]] = [((), np.arange(len(vectors)))]
    while waiting:
        path, rows = waiting.pop()
        if len(rows) > leaf:
            labels = kmeans(vectors[rows], k, rng)
            if (labels == labels[0]).all():
                labels = np.arange(len(rows)) * k // len(rows)
            waiting += [((*path, int(label)), rows[labels == label]) for label in np.unique(labels)]
        else:
            single = len(rows) == 1 and path
            for number, row in enumerate(rows.tolist()):
                paths[row] = path if single else (*path, number)
    return paths


def kmeans(vectors: Floats, k: int, rng: np.random.Generator) -> Ints:
    """The cluster of each vector, below k: Lloyd's algorithm from centers that lie apart (k-means++)."""
    few = vectors
    if len(vectors) > _SAMPLE * k:
        few = vectors[np.sort(rng.choice(len(vectors), _SAMPLE * k, replace=False))]
    centers = _apart(few, k, rng)
    labels = np.full(len(few), -1)
    for _ in range(_ROUNDS):
        before, labels = labels, _nearest(few, centers)
        if (labels == before).all():
            break
        for label in np.unique(labels).tolist():
            centers[label] = few[labels == label].mean(0)
    return _nearest(vectors, centers)


def _apart(vectors: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Some vectors as centers: each is drawn by its squared distance from those before it."""
    centers = vectors[[int(rng.integers(len(vectors)))]]
    distances = np.full(len(vectors), np.inf)
    while len(centers) < k:
        distances = np.minimum(distances, np.square(vectors - centers[-1]).sum(1, dtype=np.float64))
        if not distances.sum():
            break
        centers = np.concatenate([centers, vectors[[rng.choice(len(vectors), p=distances / distances.sum())]]])
    return centers


def _nearest(vectors: Floats, centers: Floats) -> Ints:
    """The nearest center of each vector; the first among equals."""
    nearest: Ints = (np.square(centers).sum(1) - 2 * vectors @ centers.T).argmin(1)
    return nearest
