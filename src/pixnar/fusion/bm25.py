"""BM25 over words: an index of plain texts, for the teacher of the ranking and to judge pseudo-queries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize, normalize_lines
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion.postings import Floats, Lengths, Postings, Weight, Whole
from pixnar.fusion.terms import WordNumbers, words

_FILE_KIND, _FILE_VERSION = "bm25", 3
_BATCH = 20_000
K1, B = 1.5, 0.75


class Bm25:
    """Scores texts by the words they share with a query.

    The weight of a word in a text is Lucene's: idf · tf / (tf + k1 · (1 − b + b · length / mean length)) with
    idf = ln(1 + (N − n + 0.5) / (n + 0.5)). A word counts as often as it stands in the query.

    >>> bm25 = Bm25.build(["cheap hotels in rome", "pizza in rome", "hotels of paris"])
    >>> int(bm25.score("Hotels in Paris?").argmax())
    2
    """

    def __init__(self, postings: Postings, table: SortedStrings) -> None:
        """Use `build` or `load`."""
        if len(table) != postings.n_terms:
            raise ValueError(f"{len(table)} words for {postings.n_terms} lists")
        self.postings, self.table = postings, table

    @classmethod
    def build(cls, texts: Iterable[str], *, k1: float = K1, b: float = B) -> Bm25:
        """Index texts."""
        terms, units, table, n_units = index_words(texts)
        sizes = np.bincount(units, minlength=n_units).astype(np.uint32)
        lengths = Lengths(sizes, max(len(units), 1) / max(n_units, 1), k1, b)
        return cls(Postings.from_counts(terms, units, None, len(table), n_units, lucene(n_units, lengths)), table)

    def score(self, query: str) -> Floats:
        """The score of every text."""
        found = map(self.table.find, words(normalize(query)))
        return self.postings.score([term for term in found if term is not None])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        arrays: dict[str, NDArray[Any]] = self.postings.arrays()
        arrays |= {"words": self.table.data, "word_offsets": self.table.offsets}
        write_container(path, _FILE_KIND, _FILE_VERSION, {"n_units": self.postings.n_units}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Bm25:
        """Map a file that `save` wrote; `verify` reads all of it to find damage."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        arrays, where = container.arrays, os.fspath(path)
        try:
            postings = Postings.from_arrays(arrays, int(container.meta["n_units"]), verify=verify, where=where)
            return cls(postings, SortedStrings(arrays["words"], arrays["word_offsets"], verify=verify, where=where))
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} holds no usable BM25 ({error}): build it again") from error


def index_words(texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], SortedStrings, int]:
    """The words of all texts as ids of a table, the text each is in, the table, and how many texts there are."""
    numbers = WordNumbers()
    found, lengths = numbers.of(_lines(texts))
    table = SortedStrings.of(sorted(numbers))
    ids = np.empty(len(numbers), np.int64)
    ids[[numbers[word] for word in table]] = np.arange(len(table))
    return ids[found], np.repeat(np.arange(len(lengths)), lengths), table, len(lengths)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Normalised texts."""
    rows = iter(texts)
    while batch := list(islice(rows, _BATCH)):
        yield from normalize_lines(batch).decode().split("\n")


def lucene(n_units: int, lengths: Lengths) -> Weight:
    """Lucene's weights of words in so many units of some lengths."""

    def weight(terms: NDArray[np.int64], units: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        idf = Whole(n_units, np.bincount(terms)).idf(np.arange(int(terms.max(initial=-1)) + 1))
        damping = lengths.damping(lengths.values)
        result: NDArray[np.float64] = idf[terms] * counts / (counts + damping[units])
        return result

    return weight
