"""BM25 over words: what most people would use, and a fine companion to anything else."""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize, normalize_lines
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion.atoms import words
from pixnar.fusion.postings import Floats, Postings, Weight, Whole, damaged
from pixnar.fusion.ranking import best_of_groups
from pixnar.fusion.recount import Changed, Lengths, Recounted, Rows

_FILE_KIND, _FILE_VERSION = "bm25", 2
_BATCH = 20_000
K1, B = 1.5, 0.75


class Bm25:
    """Scores units (documents, or docids that belong to documents) by the words they share with a query.

    The weight of a word in a unit is Lucene's: idf · tf / (tf + k1 · (1 − b + b · length / mean length)) with
    idf = ln(1 + (N − n + 0.5) / (n + 0.5)). A word counts as often as it stands in the query.

    >>> bm25 = Bm25.build(["cheap hotels in rome", "pizza in rome", "hotels of paris"], groups=[0, 0, 1])
    >>> int(bm25.score("Hotels in Paris?").argmax()), int(bm25.documents("Hotels in Paris?").argmax())
    (2, 1)
    """

    def __init__(
        self,
        postings: Postings,
        table: SortedStrings,
        groups: NDArray[np.uint32] | None,
        n_documents: int,
        lengths: Lengths,
        *,
        whole: Whole | None = None,
        docids: bool = True,
        verify: bool = True,
    ) -> None:
        """Use `build` or `load`; without `verify` groups are not read through."""
        if len(table) != postings.n_terms:
            raise ValueError(f"{len(table)} words for {postings.n_terms} lists")
        if groups is None and n_documents != postings.n_units:
            raise ValueError(f"{n_documents} documents for {postings.n_units} units")
        if groups is not None and len(groups) != postings.n_units:
            raise ValueError(f"{len(groups)} groups for {postings.n_units} units")
        if verify and groups is not None and len(groups) and groups.max() >= n_documents:
            raise ValueError(f"group {groups.max()} is not below {n_documents}")
        if len(lengths.values) != postings.n_units:
            raise ValueError(f"{len(lengths.values)} lengths for {postings.n_units} units")
        self.postings, self.table, self.groups, self.n_documents = postings, table, groups, n_documents
        self.lengths, self.whole, self.docids = lengths, whole, docids
        self._recounted: Recounted | None = None
        self._new_words: dict[str, int] = {}

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        groups: ArrayLike | None = None,
        *,
        join: bool = False,
        n_documents: int | None = None,
        n_counted: int | None = None,
        k1: float = K1,
        b: float = B,
        stop_words: Collection[str] = (),
        docids: bool = True,
    ) -> Bm25:
        """Index texts. `groups` says which document each text belongs to; without it each is a document of its own.

        Texts with groups are units of their own, and a document is as good as its best; with `join` all texts of a
        document are one unit, as if written one after the other. `n_documents` is for documents without any text; with
        `join`, `n_counted` is how many of them the mean length and the rarity of words are of, if not all.
        Words in `stop_words` are left out: `STOP_WORDS` makes long lists go away, at some cost in quality.
        `docids` says whether the docids of documents are among the texts: if not, losing one changes nothing.
        """
        terms, rows, table, n_texts = index_words(texts, frozenset(stop_words))
        owners = np.arange(n_texts) if groups is None else np.asarray(groups, np.int64)
        if len(owners) != n_texts:
            raise ValueError(f"{len(owners)} groups for {n_texts} texts")
        least = int(owners.max()) + 1 if n_texts else 0
        n_documents = least if n_documents is None else n_documents
        if least > n_documents or (n_texts and owners.min() < 0):
            raise ValueError(f"groups must be in 0 … {n_documents - 1}")
        joined = join or groups is None
        units, n_units = (owners[rows], n_documents) if joined else (rows, n_texts)
        values = np.bincount(units, minlength=n_units).astype(np.uint32)
        n_counted = n_counted if joined and n_counted is not None else n_units
        lengths = Lengths(values, max(len(units), 1) / max(n_counted, 1), k1, b)
        postings = Postings.from_counts(terms, units, None, len(table), n_units, lucene(n_counted, lengths))
        whole = None if n_counted == n_units else Whole(n_counted, postings.frequency)
        groups = None if joined else owners.astype(np.uint32)
        return cls(postings, table, groups, n_documents, lengths, whole=whole, docids=docids)

    def score(self, query: str) -> Floats:
        """The score of every unit."""
        return (self._recounted or self.postings).score(self.terms(query))

    def documents(self, query: str) -> Floats:
        """The score of every document: that of its best unit."""
        scores = self.score(query)
        if self.groups is None:
            return scores
        try:
            return best_of_groups(scores, self.groups, self.n_documents)
        except IndexError as error:
            raise damaged(self.postings.where, f"a group is not below {self.n_documents}") from error

    def terms(self, query: str) -> list[int]:
        """The words of a query that some unit has, by their ids in `table`."""
        found = map(self._find, words(normalize(query)))
        return [term for term in found if term is not None]

    def _find(self, word: str) -> int | None:
        found = self.table.find(word)
        return self._new_words.get(word) if found is None else found

    def changed(self, changed: Changed) -> Bm25:
        """The same after units gained and lost docids; of texts joined to one unit per document.

        How rare a word is and the mean length stay those of the build; a word that no text had stands in none.
        """
        if self.groups is not None:
            raise ValueError("texts that are units of their own cannot be counted anew: build with `join`")
        made = Bm25(self.postings, self.table, None, self.n_documents, self.lengths, verify=False)
        made.n_documents += changed.new
        gained = _words(changed.gained)
        new = sorted({word for word, _ in gained if self.table.find(word) is None})
        made._new_words = {word: len(self.table) + i for i, word in enumerate(new)}
        lost = _words(changed.lost) if self.docids else []
        rows = [(made._find(word), unit, sign) for some, sign in ((gained, 1), (lost, -1)) for word, unit in some]
        counted = np.array([row for row in rows if row[0] is not None], np.int64).reshape(-1, 3)
        longer = np.bincount(counted[:, 1], counted[:, 2], minlength=changed.size).astype(np.int64)
        whole = self.whole or self.postings.whole
        made._recounted = Recounted(self.postings, changed, Rows(*counted.T), longer, self.lengths, whole.idf)
        return made

    def part(self, documents: NDArray[np.int64]) -> Bm25:
        """The same of some documents, given ascending, which are 0, 1, 2 … there: each scores what it scores here."""
        if self.groups is None:
            return self._part(documents, None, len(documents))
        renumbered = np.full(self.n_documents, -1, np.int64)
        renumbered[documents] = np.arange(len(documents))
        owners = renumbered[self.groups]
        units = np.flatnonzero(owners >= 0)
        return self._part(units, owners[units].astype(np.uint32), len(documents))

    def _part(self, units: NDArray[np.int64], groups: NDArray[np.uint32] | None, n_documents: int) -> Bm25:
        whole = self.whole or self.postings.whole
        postings, lengths = self.postings.part(units), self.lengths.part(units)
        return Bm25(postings, self.table, groups, n_documents, lengths, whole=whole, docids=self.docids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        arrays: dict[str, NDArray[Any]] = self.postings.arrays()
        arrays |= {"words": self.table.data, "word_offsets": self.table.offsets, "lengths": self.lengths.values}
        meta: dict[str, Any] = {"n_units": self.postings.n_units, "n_documents": self.n_documents}
        meta |= self.lengths.meta | {"docids": self.docids}
        if self.groups is not None:
            arrays["groups"] = self.groups
        if self.whole is not None:
            arrays["found_in"] = self.whole.found_in
            meta["of_units"] = self.whole.n_units
        write_container(path, _FILE_KIND, _FILE_VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Bm25:
        """Map a file that `save` wrote; `verify` reads all of it to find damage."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        arrays, meta = container.arrays, container.meta
        try:
            postings = Postings.from_arrays(arrays, int(meta["n_units"]), verify=verify, where=os.fspath(path))
            table = SortedStrings(arrays["words"], arrays["word_offsets"], verify=verify, where=os.fspath(path))
            lengths = Lengths(arrays["lengths"], *(float(meta[name]) for name in ("mean", "k1", "b")))
            whole = Whole(int(meta["of_units"]), arrays["found_in"]) if "of_units" in meta else None
            how: dict[str, Any] = {"whole": whole, "docids": bool(meta["docids"]), "verify": verify}
            return cls(postings, table, arrays.get("groups"), int(meta["n_documents"]), lengths, **how)
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} holds no usable BM25 ({error}): build it again") from error


def index_words(
    texts: Iterable[str], stop_words: frozenset[str] = frozenset()
) -> tuple[NDArray[np.int64], NDArray[np.int64], SortedStrings, int]:
    """The words of all texts as ids of a table, the text each is in, the table, and how many texts there are."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
    found, lengths = array("I"), array("I")
    for line in _lines(texts):
        row = words(line)
        found.extend(map(numbers.__getitem__, row))
        lengths.append(len(row))
    table = SortedStrings.of(sorted(numbers.keys() - stop_words))
    ids = np.full(len(numbers), -1, np.int64)
    ids[[numbers[word] for word in table]] = np.arange(len(table))
    terms = ids[np.array(found, np.uint32)]
    rows = np.repeat(np.arange(len(lengths)), np.array(lengths, np.uint32))
    kept = terms >= 0
    return terms[kept], rows[kept], table, len(lengths)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Normalised texts."""
    rows = iter(texts)
    while batch := list(islice(rows, _BATCH)):
        yield from normalize_lines(batch).decode().split("\n")


def _words(texts: Iterable[tuple[int, str]]) -> list[tuple[str, int]]:
    """The words of texts, each with the unit of its text."""
    return [(word, unit) for unit, text in texts for word in words(normalize(text))]


def lucene(n_units: int, lengths: Lengths) -> Weight:
    """Lucene's weights of words in so many units of some lengths."""

    def weight(terms: NDArray[np.int64], units: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        idf = Whole(n_units, np.bincount(terms)).idf(np.arange(int(terms.max(initial=-1)) + 1))
        damping = lengths.damping(lengths.values)
        result: NDArray[np.float64] = idf[terms] * counts / (counts + damping[units])
        return result

    return weight
