"""The numbering of documents: numbers in the table, and units, by which the files of a fit count the same documents."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from pixnar.documents.documents import Documents

Ints = NDArray[np.int64]


class Numbering:
    """The documents of one state of a table: from their numbers to their units, and back.

    A table numbers documents in the order they came, and they are these integers all the way through a search; ids are
    looked up for the hits alone. The lexical index and vectors are written once, by the numbers of the table as it was
    built: the *units*. Numbers and units differ only after a change. Compaction takes removed documents out, so that
    others move up; and documents that came later have units behind all others, in the order of their ids, however the
    table came to hold them. What is known of that are two small arrays here, made once for each state of a table, and
    one array in the file of a compacted table (`Origin`). Without such changes a unit is the number itself.

    >>> from pixnar.documents.documents import Documents, pack_documents
    >>> from pixnar.corpus.records import Document
    >>> documents = Documents(pack_documents([Document(name, "", "", {}) for name in "abc"], threads=1), "a test")
    >>> numbering = Numbering(documents, later=np.array([4, 3]), gone=[1])
    >>> numbering.units(np.array([0, 3, 4])).tolist(), numbering.numbers(np.array([2, 3])).tolist()
    ([0, 4, 3], [2, 4])
    """

    def __init__(self, documents: Documents, later: Ints, gone: Collection[int]) -> None:
        """`later` are the numbers of documents that the build did not have, `gone` those of removed ones."""
        self.built, self.later = documents.origin.size, later
        self._count, self._then, self._now = len(documents), documents.origin.numbers, documents.by_origin
        self._order = np.argsort(later)
        self._sorted = later[self._order]
        self.gone = self._units_gone(gone)

    def units(self, numbers: Ints) -> Ints:
        """The units of documents; -1 for one that has come since and has no docid."""
        units = np.full(len(numbers), -1, np.int64)
        old = (numbers >= 0) & (numbers < self._count)
        units[old] = numbers[old] if self._then is None else self._then[numbers[old]]
        if len(self.later):
            places = np.minimum(np.searchsorted(self._sorted, numbers), len(self.later) - 1)
            later = self._sorted[places] == numbers
            units[later] = self.built + self._order[places[later]]
        return units

    def numbers(self, units: Ints) -> Ints:
        """The numbers of documents; -1 for one that is gone since a compaction."""
        numbers, later = units.copy(), units >= self.built
        if self._now is not None:
            numbers[~later] = self._now[units[~later]]
        numbers[later] = self.later[units[later] - self.built]
        return numbers

    def _units_gone(self, gone: Collection[int]) -> Ints:
        """The units of documents that the build had and that are not there any more, ascending."""
        numbers = np.array(sorted(number for number in gone if number < self._count), np.int64)
        units = numbers if self._then is None else self._then[numbers]
        before = np.zeros(0, np.int64) if self._now is None else np.flatnonzero(self._now < 0)
        return np.union1d(units[units >= 0], before)
